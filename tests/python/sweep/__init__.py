"""Every operator that torch can name, on sharded tensors, against one device.

torch lists its operators with samples in `op_db`. The sweep shards the inputs of those samples in a fixed list of ways,
runs the operator forwards and backwards on four ranks, and compares with the same call on whole tensors. It does so for
sherd and, as a measure, for torch's own DTensor ("peers").

    PYTHONPATH=build/python:tests/python python -m sweep --help

Read in this order: `cases` (what is tried), `dense` (what is right), `peer` (who is asked), `trial` (one case, judged),
`driver` and `worker` (many cases, in processes that may hang or crash), `report` (what came out).
"""
