"""What a file may be after what was done to it, some of it for certain and some of it perhaps.

One writer has a name, so what is done to it has an order. What was answered with success holds; what was not may have happened or not. So a
name has several contents that are possible (None: it is not there), and every content that it ever had as a whole is known by its digest.

What is put appears at the destination only as a whole. What is written in place (`--offset`) grows there, each byte old or new (docs/formats/holding.md); so
contents that follow one another by such writes are a chain, and while things happen any mixture of a chain may be seen. At the end none may.

A rename takes what a name may be to another of the same writer. What is appended (`Log`) is a sequence of pieces.
"""

import hashlib
import os
import threading

POSSIBLE_MAX = 6
CHAINS_MAX = 16  # a destination may lag behind
TELLING = 12  # bytes; shorter contents are alike by chance, and say nothing about what came first


def digest(content):
    return hashlib.blake2b(b"nothing" if content is None else content, digest_size=16).hexdigest()


class Name:
    def __init__(self, name):
        self.name = name
        self.lock = threading.Lock()
        self.possible = [None]
        self.torn = []  # (content, offset, data): bytes of a write in place that may be there in part
        self.ever, self.repeated = {}, set()  # digest -> which generation; those that several had
        self.generation = 0
        self.chains = [Chain([None])]
        self.committed = 0
        self.seen = 0  # the latest generation that was seen at the target
        self.history = []  # for a person
        self.renamed = []  # what it was renamed to
        self.left = {}  # to which other name it went, after which generation
        self.returned = []  # (a generation after which it left, the one with which it came back)

    def begin(self, act):
        """What is about to be done: ("put", content), ("patch", offset, data), ("truncate", size) or ("unlink",). Returns what it may leave."""
        with self.lock:
            results = [applied(act, content) for content in self.possible]
            self.generation += 1
            for result in results:
                known = self.ever.setdefault(digest(result), self.generation)
                # What was there before (nothing at all, say) is not told from the older one: it is no sign of going back.
                if known != self.generation:
                    self.repeated.add(digest(result))
            if act[0] in ("put", "unlink"):
                self.chains = self.chains[1 - CHAINS_MAX:] + [Chain(results)]
            else:
                self.chains[-1].grows(self.possible + results, act[1], act[1] + len(act[2] if act[0] == "patch" else b""))
            return act, results

    def takes(self, other):
        """Is about to become what `other` is: what was seen there may be seen here, in whatever order."""
        with self.lock, other.lock:
            other.renamed.append(self)
            other.left[self] = other.generation
            self.generation += 1
            if other in self.left:
                self.returned.append((self.left[other], self.generation))
            for one in other.ever:
                self.ever.setdefault(one, self.generation)
            self.repeated |= other.ever.keys()
            self.chains = (self.chains + [chain.copy() for chain in other.chains])[-2 * CHAINS_MAX:]

    def took(self, other, is_sure, how):
        """That ended: each of the two is what it was, or what it was to be."""
        with self.lock, other.lock:
            content = other.possible[0]
            self.history.append(f"{self.generation} renamed from {other.name} {digest(content)[:8]}: {how}{'' if is_sure else ' (in doubt)'}")
            other.history.append(f"{other.generation} renamed to {self.name}: {how}{'' if is_sure else ' (in doubt)'}")
            self.possible = [content] if is_sure else unique(self.possible + [content])
            other.possible = [None] if is_sure else unique([content, None])
            # What is put there next is not one of the mixtures of what was.
            other.chains = other.chains[1 - CHAINS_MAX:] + [Chain(other.possible)]
            if is_sure:
                self.torn, self.committed = [], self.generation

    def end(self, begun, is_sure, how):
        act, results = begun
        with self.lock:
            size = len(results[0] or b"") if act[0] == "truncate" else len(act[-1]) if len(act) > 1 else 0
            self.history.append(f"{self.generation} {act[0]} {size}{f' at {act[1]}' if act[0] == 'patch' else ''}"
                                f" {digest(results[0])[:8]}: {how}{'' if is_sure else ' (in doubt)'}")
            if is_sure:
                self.possible = unique(results)
                self.committed = self.generation
                if act[0] in ("put", "unlink"):
                    self.torn = []
                elif act[0] == "patch":
                    self.torn = [(applied(act, c), o, d) for c, o, d in self.torn]
            else:
                if act[0] == "patch":
                    self.torn += [(content, act[1], act[2]) for content in self.possible]
                self.possible = unique(self.possible + results)

    @property
    def is_settled(self):
        """Tells whether more may be left in doubt without having too many contents to compare with."""
        return len(self.possible) < POSSIBLE_MAX and len(self.torn) < POSSIBLE_MAX

    @property
    def is_known(self):
        """Tells whether it is there, and nothing of it is in doubt."""
        return len(self.possible) == 1 and self.possible[0] is not None and not self.torn

    def judged(self, content):
        """Returns what is wrong with what is at the target at the end: None, `lost` or `wrong`, and why."""
        with self.lock:
            if content in self.possible or any(mixed(content, *torn) for torn in self.torn):
                return None
            wanted = ", ".join("nothing" if c is None else f"{len(c)} bytes {digest(c)[:8]} (generation {self.ever.get(digest(c))})" for c in self.possible)
            if content is None:
                return "lost", f"{self.name}: nothing is there, possible are {wanted}"
            which = self.ever.get(digest(content))
            if which is not None:
                return "lost", f"{self.name}: generation {which} is there, possible are {wanted}"
            return "wrong", f"{self.name}: {len(content)} bytes {digest(content)[:8]} are there that never were a generation{self.near(content)}; possible are {wanted}"

    def near(self, content):
        for whole in self.possible:
            if whole is None:
                continue
            if whole.startswith(content):
                return f" (a beginning of {digest(whole)[:8]})"
            differs = [at for at in range(min(len(whole), len(content))) if whole[at] != content[at]]
            if differs:
                return f" (bytes {differs[0]} to {differs[-1]} differ from {digest(whole)[:8]}, {len(differs)} in all)"
        return ""

    def glimpsed(self, content, may_go_back):
        """Judges what is seen at the target while things happen: anything that was ever whole will do, if it is not older than what was seen."""
        with self.lock:
            which = self.ever.get(digest(content))
            if which is None:
                # What is on its way when it is renamed comes under its old name first, with what was written until it goes.
                if any(chain.mixes(content) for name in [self, *self.renamed] for chain in name.chains):
                    return None
                if any(digest(content) in name.ever for name in self.renamed):
                    return None
                # What was written in place and not yet promised, a power cut may leave as zeros, until it is written again.
                if may_go_back and any(chain.cuts != {0} for chain in self.chains):
                    return None
                return "wrong", f"{self.name}: seen with {len(content)} bytes {digest(content)[:8]} that never were a generation{self.near(content)}"
            if digest(content) in self.repeated or len(content) < TELLING:
                return None
            if which < self.seen and not may_go_back:
                return "wrong", f"{self.name}: generation {which} was seen after {self.seen}"
            self.seen = self.not_before(which)
            return None

    def not_before(self, which):
        """Returns after which generation it is for certain what is seen now. What left for another name and came back is one
        file, which comes first under the name that it had first, with what was written since."""
        for left, back in reversed(self.returned):
            if which >= back:
                which = min(which, left)
        return which


class Chain:
    """Contents of which one came from another by writes in place."""

    def __init__(self, contents):
        self.contents, self.cuts = list(contents), {0}

    def grows(self, contents, begin, end):
        self.contents = unique(self.contents + contents)
        self.cuts |= {begin, end} | {len(content or b"") for content in contents}

    def copy(self):
        other = Chain(self.contents)
        other.cuts = set(self.cuts)
        return other

    def mixes(self, content):
        """Tells whether each byte is that of one of them. One alone has no mixture but itself."""
        if len(self.contents) < 2:
            return False
        whole = [(one or b"").ljust(len(content), b"\0") for one in self.contents]
        if len(content) > max(len(one or b"") for one in self.contents):
            return False
        cuts = sorted(cut for cut in self.cuts | {len(content)} if cut <= len(content))
        for begin, end in zip(cuts, cuts[1:]):
            piece = content[begin:end]
            if any(piece == one[begin:end] for one in whole):
                continue
            if not all(byte in some for byte, *some in zip(piece, *(one[begin:end] for one in whole))):
                return False
        return True


class Log:
    """A file to which one writer appends pieces, one after the other; each begins with a byte that is nowhere else in it."""

    def __init__(self, name):
        self.name, self.pieces, self.lock, self.history = name, [], threading.Lock(), []  # pieces: (bytes, is it sure)
        self.longest = 0

    def begin(self, piece):
        with self.lock:
            self.pieces.append((piece, False))

    def end(self, is_sure, how):
        with self.lock:
            piece, _ = self.pieces[-1]
            self.pieces[-1] = piece, is_sure
            self.history.append(f"{len(self.pieces)} append {len(piece)}: {how}{'' if is_sure else ' (in doubt)'}")

    def judged(self, content):
        """All that is sure is there once and in order, and of the rest a beginning of each piece or nothing."""
        content = content or b""
        with self.lock:
            return self.walked(content, {nth for nth, (_, is_sure) in enumerate(self.pieces) if is_sure})

    def glimpsed(self, content, may_go_back):
        """The same while things happen: a beginning of it, and no shorter than it was."""
        with self.lock:
            if may_go_back:
                # After a power cut there may be a tail that was never promised, until the node looks at the file.
                self.longest = 0
                return None
            if len(content) < self.longest:
                return "wrong", f"{self.name}: {len(content)} bytes were seen after {self.longest}"
            self.longest = len(content)
            return self.walked(content, ())

    def walked(self, content, sure):
        places, furthest = {0}, 0  # where the next piece may begin
        for nth, (piece, _) in enumerate(self.pieces):
            after = set()
            for at in places:
                common = len(piece) if content.startswith(piece, at) else len(os.path.commonprefix([piece, content[at:at + len(piece)]]))
                furthest = max(furthest, at + common)
                if nth not in sure:
                    after |= {to for to in range(at, at + common) if content[to:to + 1] == piece[:1]}
                if nth not in sure or common == len(piece):
                    after.add(at + common)
            if not after:
                return "lost", f"{self.name}: piece {nth + 1} ({len(piece)} bytes) is not there as a whole; all is well up to byte {furthest} of {len(content)}"
            places = after
        if len(content) not in places:
            return "wrong", f"{self.name}: byte {furthest} of {len(content)} is of no piece that should stand there ({content[furthest:furthest + 20]!r})"
        return None


def applied(act, content):
    if act[0] == "put":
        return act[1]
    if act[0] == "unlink":
        return None
    if act[0] == "truncate":
        return (content or b"")[:act[1]].ljust(act[1], b"\0")
    _, offset, data = act
    content = (content or b"").ljust(offset, b"\0")
    return content[:offset] + data + content[offset + len(data):]


def mixed(content, before, offset, data):
    """Tells whether it is `before` with some of the bytes of that write: each byte old or new."""
    if content is None:
        return before is None
    after = applied(("patch", offset, data), before)
    before = before or b""
    if not len(before) <= len(content) <= len(after):
        return False
    before = before.ljust(len(content), b"\0")
    return all(c in (b, a) for c, b, a in zip(content, before, after))


def unique(contents):
    kept = []
    for content in contents:
        if content not in kept:
            kept.append(content)
    return kept
