"""The part of the sweep that runs as a test: operators of every kind, a minute in all."""

OPERATORS = """
add mul div.no_rounding_mode where clamp exp nn.functional.gelu masked_fill
mm bmm addmm matmul einsum nn.functional.linear nn.functional.conv2d nn.functional.scaled_dot_product_attention
sum mean amax var.unbiased cumsum argmax softmax linalg.vector_norm
nn.functional.layer_norm nn.functional.cross_entropy nn.functional.embedding
reshape transpose permute cat split squeeze expand flatten unbind
index_select gather scatter_add sort topk nn.functional.pad.constant
""".split()

SAMPLES = 2
CHOICES = 3
