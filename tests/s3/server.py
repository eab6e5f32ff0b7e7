"""A store that speaks S3, for tests: moto's, behind two doors that check every signature by botocore's own code.

Prints the address of the plain door, of the faulty one, and of one that does not answer; then serves until the
program that started it ends. Behind the faulty door every third request meets a fault: an answer of 503 or 500, a connection cut before, in the
middle of or after the request, in turns. Exits with 77 where moto is not installed.

usage: server.py BUCKET
"""

import http.client
import itertools
import logging
import os
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

try:
    import boto3
    from botocore.auth import S3SigV4Auth
    from botocore.awsrequest import AWSRequest
    from botocore.credentials import Credentials
    from moto.server import ThreadedMotoServer
    from werkzeug.serving import WSGIRequestHandler
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(77)

KEYS = Credentials("access-key", "secret/key+of=tests")
FAULTS = ["503", "cut before", "500", "cut in the middle", "cut after"]


def expected_signature(method: str, url: str, headers: dict[str, str]) -> str:
    signed = headers["authorization"].split("SignedHeaders=")[1].split(",")[0].split(";")
    region = headers["authorization"].split("Credential=")[1].split("/")[2]
    request = AWSRequest(method=method, url=url, headers={name: headers[name] for name in signed})
    request.context["timestamp"] = headers["x-amz-date"]
    auth = S3SigV4Auth(KEYS, "s3", region)
    return auth.signature(auth.string_to_sign(request, auth.canonical_request(request)), request)


class Door(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # small answers would wait 40 ms
    faulty = False
    moto: str
    inner: http.client.HTTPConnection | None = None
    counter = itertools.count(1)

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, body: bytes, headers: list[tuple[str, str]], cut: bool = False) -> None:
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        length = dict((name.lower(), value) for name, value in headers).get("content-length", str(len(body)))
        self.send_header("Content-Length", length if self.command == "HEAD" else str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self.cut()

    def refuse(self, status: int, code: str) -> None:
        body = f"<Error><Code>{code}</Code><Message>{code} from the test</Message></Error>".encode()
        self.answer(status, body, [("Content-Type", "application/xml")])

    def cut(self) -> None:
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def serve(self) -> None:
        fault = ""
        if self.faulty:
            number = next(self.counter)
            fault = FAULTS[number // 3 % len(FAULTS)] if number % 3 == 0 else ""
        if fault == "cut before":
            return self.cut()
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if fault in ("503", "500"):
            return self.refuse(int(fault), "SlowDown")
        headers = {name.lower(): value for name, value in self.headers.items()}
        url = f"http://{headers['host']}{self.path}"
        if "authorization" not in headers:
            return self.refuse(403, "AccessDenied")
        if not headers["authorization"].endswith("Signature=" + expected_signature(self.command, url, headers)):
            return self.refuse(403, "SignatureDoesNotMatch")
        if self.inner is None:
            self.inner = http.client.HTTPConnection(self.moto)
        self.inner.request(self.command, self.path, body, dict(self.headers.items()))
        answer = self.inner.getresponse()
        content = answer.read()
        if fault == "cut after":
            return self.cut()
        self.answer(answer.status, content, answer.getheaders(), cut=fault == "cut in the middle")

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve


def open_door(moto: str, faulty: bool) -> str:
    door = type("FaultyDoor" if faulty else "PlainDoor", (Door,), {"faulty": faulty, "moto": moto})
    server = ThreadingHTTPServer(("127.0.0.1", 0), door)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"


def main() -> None:
    WSGIRequestHandler.disable_nagle_algorithm = True
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    boto3.client(
        "s3", endpoint_url=f"http://{host}:{port}", region_name="us-east-1",
        aws_access_key_id="x", aws_secret_access_key="x",
    ).create_bucket(Bucket=sys.argv[1])
    closed = socket.socket()
    closed.bind(("127.0.0.1", 0))
    print(open_door(f"{host}:{port}", faulty=False), flush=True)
    print(open_door(f"{host}:{port}", faulty=True), flush=True)
    print(f"http://127.0.0.1:{closed.getsockname()[1]}", flush=True)
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.2)


main()
