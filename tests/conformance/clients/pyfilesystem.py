"""pyfilesystem.py PORT: FSTestCases, which PyFilesystem2 asks of every file system, over its FTPFS."""

import sys
import unittest
import uuid

from fs.ftpfs import FTPFS
from fs.test import FSTestCases

PORT = int(sys.argv[1])


class OverFtp(FSTestCases, unittest.TestCase):
    def make_fs(self):
        return FTPFS("127.0.0.1", user="anonymous", passwd="x@", port=PORT, timeout=10).makedir(uuid.uuid4().hex)

    def destroy_fs(self, fs):
        try:
            fs.delegate_fs().close()
        except Exception:  # a test may have broken the connection on purpose
            pass


result = unittest.TextTestRunner(verbosity=0).run(unittest.defaultTestLoader.loadTestsFromTestCase(OverFtp))
bad = result.failures + result.errors
for test, _ in bad:
    print("FAIL", test.id().rsplit(".", 1)[-1])
for test, why in result.skipped:
    print("SKIP", test.id().rsplit(".", 1)[-1], why)
print(f"passed {result.testsRun - len(bad) - len(result.skipped)} failed {len(bad)}")
