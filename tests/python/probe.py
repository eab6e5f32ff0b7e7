"""Talks to build/tests/format_probe (format_probe.cpp): a verb and arguments in, an answer out."""

import subprocess


class Refused(Exception):
    pass


class Probe:
    def __init__(self, program):
        self.process = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, verb, *arguments):
        self.process.stdin.write("\t".join([verb, *map(str, arguments)]) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().rstrip("\n")
        if answer.startswith("ok"):
            return answer[3:]
        raise Refused(answer or f"the probe ended: {self.process.wait()}")
