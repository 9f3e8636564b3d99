"""A file is replaced whole or not at all, and stays the file that it was."""

import os
import resource
import stat
import tempfile
import threading
from pathlib import Path

import pytest
from filelock import FileLock

from specedit.editing import SourceFile, source
from specedit.types import Refused, SpecEditError

NOBODY = 65534


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("SPECEDIT_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.py"
    path.write_bytes(b"old\n")
    return path


def only(path):
    """Nothing is left beside the file."""
    return os.listdir(path.parent) == [path.name]


def in_child(act, *, user=None, file_size=None):
    """What `act` raises in a process of its own, as "Type: message"; "" if it raises nothing."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = ""
        try:
            if file_size is not None:
                resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
            if user is not None and os.geteuid() == 0:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            act()
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        os.write(writing, said.encode())
        os._exit(0)
    os.close(writing)
    with open(reading, encoding="utf-8") as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return said


@pytest.fixture
def nobodys(monkeypatch):
    """A file that an unprivileged user owns and can reach; pytest's own directories are closed to others."""
    with tempfile.TemporaryDirectory() as made:
        top = Path(made)
        file = top / "work" / "a.py"
        file.parent.mkdir()
        file.write_bytes(b"old\n")
        (top / "cache").mkdir()
        monkeypatch.setenv("SPECEDIT_CACHE", str(top / "cache"))
        if os.geteuid() == 0:
            for path in [top, top / "cache", file.parent, file]:
                os.chown(path, NOBODY, NOBODY)
        yield file
        file.parent.chmod(0o755)


def test_the_new_bytes_are_there(file):
    SourceFile.read(file).write(b"new\r\n")
    assert file.read_bytes() == b"new\r\n"
    assert only(file)


@pytest.mark.parametrize("mode", [0o755, 0o640, 0o4755])
def test_the_mode_stays(file, mode):
    file.chmod(mode)
    SourceFile.read(file).write(b"new")
    assert stat.S_IMODE(file.stat().st_mode) == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_the_owner_stays(file):
    os.chown(file, 1234, 4321)
    SourceFile.read(file).write(b"new")
    assert (file.stat().st_uid, file.stat().st_gid) == (1234, 4321)


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="this system has no extended attributes")
def test_extended_attributes_stay(file):
    try:
        os.setxattr(file, "user.origin", b"here")
    except OSError:
        pytest.skip("this file system has no extended attributes")
    SourceFile.read(file).write(b"new")
    assert os.getxattr(file, "user.origin") == b"here"


def test_the_time_of_change_is_new(file):
    os.utime(file, (1, 1))
    SourceFile.read(file).write(b"new")
    assert file.stat().st_mtime > 1


def test_a_symlink_stays_and_its_file_is_replaced(file, tmp_path_factory):
    link = tmp_path_factory.mktemp("elsewhere") / "link.py"
    link.symlink_to(file)
    SourceFile.read(link).write(b"new")
    assert link.is_symlink()
    assert only(link)
    assert file.read_bytes() == b"new"


def test_a_file_changed_meanwhile_is_left_alone(file):
    read = SourceFile.read(file)
    file.write_bytes(b"mine\n")
    with pytest.raises(Refused, match="changed on disk meanwhile"):
        read.write(b"new")
    assert file.read_bytes() == b"mine\n"
    assert only(file)


def test_a_file_changed_while_the_new_one_is_written_is_left_alone(file, monkeypatch):
    read = SourceFile.read(file)
    monkeypatch.setattr(source.os, "fsync", lambda fd: file.write_bytes(b"mine\n"))
    with pytest.raises(Refused, match="changed on disk"):
        read.write(b"new")
    assert file.read_bytes() == b"mine\n"


def test_a_file_removed_meanwhile_does_not_come_back(file):
    read = SourceFile.read(file)
    file.unlink()
    with pytest.raises(Refused, match="changed on disk"):
        read.write(b"new")
    assert not os.listdir(file.parent)


def test_of_many_at_once_one_wins(file):
    reads = [SourceFile.read(file) for _ in range(8)]
    written = []

    def write(number):
        try:
            reads[number].write(b"%d" % number)
            written.append(number)
        except Refused:
            pass

    threads = [threading.Thread(target=write, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(written) == 1
    assert file.read_bytes() == b"%d" % written[0]


def test_a_file_that_another_specedit_is_writing(file, monkeypatch):
    monkeypatch.setattr(source, "_LOCK_SECONDS", 0.05)
    with FileLock(source._lock(file).lock_file), pytest.raises(SpecEditError, match="Another specedit"):
        SourceFile.read(file).write(b"new")
    assert file.read_bytes() == b"old\n"


def test_a_full_disk(file):
    read = SourceFile.read(file)
    said = in_child(lambda: read.write(b"x" * 10_000), file_size=5_000)
    assert said.startswith(f"SpecEditError: Cannot write {file} (file too large)")
    assert file.read_bytes() == b"old\n"
    assert only(file)


def test_an_interrupt(file, monkeypatch):
    def interrupt(fd):
        raise KeyboardInterrupt

    monkeypatch.setattr(source.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        SourceFile.read(file).write(b"new")
    assert file.read_bytes() == b"old\n"
    assert only(file)


def test_a_file_without_permission_to_read(nobodys):
    nobodys.chmod(0)
    assert "Cannot read" in in_child(lambda: SourceFile.read(nobodys), user=NOBODY)


def test_a_read_only_file_stays(nobodys):
    nobodys.chmod(0o444)
    assert "is read-only" in in_child(lambda: SourceFile.read(nobodys).write(b"new"), user=NOBODY)
    assert nobodys.read_bytes() == b"old\n"


def test_a_read_only_directory(nobodys):
    nobodys.parent.chmod(0o555)
    assert "permission denied" in in_child(lambda: SourceFile.read(nobodys).write(b"new"), user=NOBODY)
    assert nobodys.read_bytes() == b"old\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a file away")
def test_a_file_whose_owner_could_not_be_kept(nobodys):
    os.chown(nobodys, 1234, 4321)
    nobodys.chmod(0o666)
    assert "not permitted" in in_child(lambda: SourceFile.read(nobodys).write(b"new"), user=NOBODY)
    assert nobodys.read_bytes() == b"old\n"
    assert only(nobodys)


def test_a_cache_that_cannot_be_made(file, monkeypatch):
    monkeypatch.setenv("SPECEDIT_CACHE", str(file / "below"))
    with pytest.raises(SpecEditError, match="SPECEDIT_CACHE"):
        SourceFile.read(file).write(b"new")


def test_a_new_output_gets_the_mode_of_the_source(file, tmp_path):
    file.chmod(0o755)
    SourceFile.read(file).write(b"new", tmp_path / "b.py")
    assert (tmp_path / "b.py").read_bytes() == b"new"
    assert os.access(tmp_path / "b.py", os.X_OK)
    assert file.read_bytes() == b"old\n"


def test_an_output_keeps_its_own_mode(file, tmp_path):
    (tmp_path / "b.py").write_bytes(b"other")
    (tmp_path / "b.py").chmod(0o600)
    SourceFile.read(file).write(b"new", tmp_path / "b.py")
    assert (tmp_path / "b.py").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "b.py").stat().st_mode) == 0o600


def test_an_output_that_is_the_source_is_checked_like_it(file):
    read = SourceFile.read(file)
    file.write_bytes(b"mine\n")
    with pytest.raises(Refused):
        read.write(b"new", f"{file.parent}/./{file.name}")


def test_an_output_in_no_directory(file, tmp_path):
    with pytest.raises(SpecEditError, match="There is no directory"):
        SourceFile.read(file).write(b"new", tmp_path / "none" / "b.py")


@pytest.mark.parametrize("output", ["/dev/null", "."])
def test_an_output_that_is_no_regular_file(file, output):
    with pytest.raises(SpecEditError, match="not a regular file"):
        SourceFile.read(file).write(b"new", output)
    assert not os.path.isfile("/dev/null")


def test_text_from_no_file_needs_a_path(tmp_path):
    text = SourceFile.from_text("a\n")
    with pytest.raises(SpecEditError, match="name the file"):
        text.write(b"b\n")
    text.write(b"b\n", tmp_path / "b.txt")
    assert (tmp_path / "b.txt").read_bytes() == b"b\n"
