#include "storage/s3_sign.h"

#include <gtest/gtest.h>

#include "storage/s3_xml.h"
#include "storage/sha256.h"

namespace sherd {
namespace {

TEST(Sha256Test, EqualsTheStandardsExamples) {
  EXPECT_EQ(hex_of(sha256("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex_of(sha256("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex_of(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex_of(sha256(std::string(1'000'000, 'a'))),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  for (const size_t size : {55U, 56U, 63U, 64U, 65U}) {  // around the border of a block
    EXPECT_NE(hex_of(sha256(std::string(size, 'a'))), hex_of(sha256(std::string(size + 1, 'a'))));
  }
}

TEST(Sha256Test, HmacEqualsRfc4231) {
  EXPECT_EQ(hex_of(hmac_sha256("Jefe", "what do ya want for nothing?")),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(hex_of(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(S3SignTest, TextsAreEncodedAsTheStoreExpects) {
  EXPECT_EQ(url_encode("a/b c~._-+\xc3\xa9", true), "a/b%20c~._-%2B%C3%A9");
  EXPECT_EQ(url_encode("a/b", false), "a%2Fb");
  EXPECT_EQ(query_text({{"uploadId", "x=y"}, {"partNumber", "1"}}), "partNumber=1&uploadId=x%3Dy");
}

// The rest is compared with botocore's signatures, request by request, in tests/s3.
TEST(S3SignTest, TheSameRequestHasTheSameSignature) {
  S3Call call{.method = "GET", .host = "localhost:9000", .path = "/bucket/a key", .query = {{"uploads", ""}}};
  sign(call, {.access_key = "id", .secret_key = "secret", .session_token = "token", .region = "eu-west-1"},
       "20240102T030405Z");
  ASSERT_EQ(call.headers.back().first, "authorization");
  EXPECT_EQ(call.headers.back().second,
            "AWS4-HMAC-SHA256 Credential=id/20240102/eu-west-1/s3/aws4_request, "
            "SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token, "
            "Signature=a15508fc6880fbde73b53a62c0cb31287f58f2f63736abd66609dbb343faa45d");
}

TEST(S3XmlTest, ElementsAreFoundByName) {
  const std::string text =
      "<?xml version=\"1.0\"?><List xmlns=\"x\"><Key>a&amp;b&#x2F;&#47;&lt;</Key><Keys>no</Keys><Key/><Key "
      "a=\"b\">2</Key></List>";
  EXPECT_EQ(xml_text(text, "Key"), "a&b//<");
  ASSERT_EQ(xml_elements(text, "Key").size(), 2U);
  EXPECT_EQ(xml_elements(text, "Key")[1], "2");
  EXPECT_EQ(xml_text(text, "Other"), "");
  EXPECT_EQ(xml_text("<Key>cut off", "Key"), "");
  EXPECT_EQ(xml_escape("<\"&'>"), "&lt;&quot;&amp;&apos;&gt;");
}

}  // namespace
}  // namespace sherd
