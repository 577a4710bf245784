//! The operations, each with its untraced preparation.

use crate::stage::{ATTRIBUTE, FILE, PAGE, Stage};
use lanefs::{FileOptions, FileTimes, Follow, NewKind, NewNode, Rename, SetAttr};
use lanefs_vfs::OpenFlags;

/// An operation of the library.
pub struct Operation {
    pub name: &'static str,
    /// Whether several threads may concurrently run the operation on the same file without
    /// affecting each other.
    pub commutes: bool,
    /// Prepares the files and names for `act`.
    pub prepare: fn(&mut Stage<'_>),
    /// Runs the operation without its preparation.
    pub act: fn(&mut Stage<'_>),
    /// The largest number of threads with which the operation can be traced. An fsync has a limit,
    /// because the commit of many threads' changes is too long to record.
    pub most_threads: usize,
}

const fn commuting(name: &'static str, act: fn(&mut Stage<'_>)) -> Operation {
    Operation { name, commutes: true, prepare: nothing, act, most_threads: usize::MAX }
}

const fn changing(
    name: &'static str,
    prepare: fn(&mut Stage<'_>),
    act: fn(&mut Stage<'_>),
) -> Operation {
    Operation { name, commutes: false, prepare, act, most_threads: usize::MAX }
}

const fn fresh(name: &'static str, act: fn(&mut Stage<'_>)) -> Operation {
    changing(name, nothing, act)
}

/// Returns whether a word of the command line selects the operation `name`: the word is a part of
/// the name, or the whole name after `=`.
pub fn selects(word: &str, name: &str) -> bool {
    word.strip_prefix('=').map_or_else(|| name.contains(word), |whole| name == whole)
}

/// Panics on a failure. A failure is a bug in the tool, because the image is large enough and the
/// device does not fail.
fn done<T, E: std::fmt::Debug>(result: Result<T, E>) -> T {
    result.expect("an operation that cannot fail")
}

pub const OPERATIONS: &[Operation] = &[
    commuting("stat", |s| assert!(done(s.fs.metadata(&s.file)).is_file())),
    commuting("lstat", |s| assert!(done(s.fs.symlink_metadata(&s.link)).is_symlink())),
    commuting("fstat", |s| assert!(s.open().metadata().is_file())),
    fresh("look-up of nothing", |s| assert!(!done(s.fs.exists(&s.name)))),
    commuting("open and close", |s| drop(done(s.fs.open_file(&s.file)))),
    commuting("open to write and close", |s| {
        drop(done(s.fs.open_file_with(&s.file, &FileOptions::new().read(true).write(true))));
    }),
    commuting("read", |s| {
        let (mut page, at) = (std::mem::take(&mut s.page), s.offset());
        done(s.open().read_at(&mut page, at));
        s.page = page;
    }),
    commuting("overwrite", |s| done(s.open().write_all_at(&s.page, s.offset()))),
    changing("append", a_small_file, |s| done(held(s).write_all_at(&s.page, PAGE))),
    changing("write into a hole", a_sparse_file, |s| done(held(s).write_all_at(&s.page, 0))),
    changing("fallocate", a_small_file, |s| done(held(s).allocate(PAGE, 2 * PAGE))),
    changing("truncate", a_file_of_pages, |s| done(held(s).set_len(PAGE))),
    changing("grow", a_small_file, |s| done(held(s).set_len(FILE))),
    changing("punch", a_file_of_pages, |s| done(held(s).punch(PAGE, PAGE))),
    commuting("seek data", |s| assert!(done(s.open().seek_data(0)).is_some())),
    commuting("seek hole", |s| assert!(done(s.open().seek_hole(0)).is_some())),
    fresh("create and close", |s| {
        drop(done(s.fs.open_file_with(&s.name, &FileOptions::new().write(true).create_new(true))));
    }),
    fresh("mknod", |s| {
        let node = NewNode { kind: NewKind::Fifo, permissions: 0o600, umask: 0 };
        done(s.fs.create_node(&s.name, &node));
    }),
    changing("unlink", an_empty_file, |s| done(s.fs.remove_file(&s.name))),
    changing("unlink of data", a_closed_file, |s| done(s.fs.remove_file(&s.name))),
    changing("unlink of one of two names", two_names, |s| done(s.fs.remove_file(&s.other))),
    changing("close of an unlinked file", an_unlinked_file, |s| s.held = None),
    fresh("mkdir", |s| done(s.fs.create_dir(&s.name))),
    changing("rmdir", a_directory, |s| done(s.fs.remove_dir(&s.name))),
    fresh("link", |s| done(s.fs.hard_link(&s.file, &s.name))),
    fresh("symlink", |s| done(s.fs.symlink("target", &s.name))),
    commuting("readlink", |s| drop(done(s.fs.read_link(&s.link)))),
    changing("rename", an_empty_file, |s| done(s.fs.rename(&s.name, &s.other))),
    changing("rename across", a_way_out, |s| done(s.fs.rename(&s.name, &s.other))),
    changing("rename over", two_files, |s| done(s.fs.rename(&s.name, &s.other))),
    changing("exchange", two_files, |s| {
        done(s.fs.rename_with(&s.name, &s.other, Rename::Exchange));
    }),
    changing("rename of a directory", a_directory, |s| done(s.fs.rename(&s.name, &s.other))),
    commuting("readdir", |s| {
        // Each directory has at most 256 entries, so the first call of `next` reads all of them.
        assert!(done(s.fs.read_dir(&s.home)).next().is_some());
    }),
    commuting("getxattr", |s| assert!(done(s.fs.xattr(&s.file, ATTRIBUTE)).is_some())),
    commuting("listxattr", |s| assert!(!done(s.fs.xattrs(&s.file)).is_empty())),
    fresh("setxattr", |s| done(s.fs.set_xattr(&s.file, ATTRIBUTE, b"green"))),
    changing("removexattr", a_coloured_file, |s| done(s.fs.remove_xattr(&s.name, ATTRIBUTE))),
    fresh("chmod", |s| done(s.fs.set_permissions(&s.file, 0o640))),
    fresh("chown", |s| {
        let set = SetAttr { uid: Some(7), gid: Some(8), ..SetAttr::default() };
        done(s.fs.set_attr(&s.file, &set, Follow::Links));
    }),
    fresh("utimens", |s| done(s.fs.set_times(&s.file, FileTimes::now()))),
    changing("temporary file", a_directory, |s| {
        let (vfs, who) = (s.fs.vfs(), s.fs.credentials());
        let new = NewNode { kind: NewKind::Regular, permissions: 0o600, umask: 0 };
        let dir = done(vfs.walk(who, vfs.root(), s.home.as_bytes(), Follow::Links));
        let open = done(vfs.open_unnamed(who, &dir, OpenFlags::WRITE, &new));
        vfs.release(&open);
    }),
    commuting("fsync of a clean file", |s| done(s.open().sync_all())),
    Operation { most_threads: 8, ..changing("fsync", a_small_file, |s| done(held(s).sync_all())) },
];

fn held<'s>(s: &'s Stage<'_>) -> &'s lanefs::File {
    s.held.as_ref().expect("prepared")
}

fn nothing(_: &mut Stage<'_>) {}

fn an_empty_file(s: &mut Stage<'_>) {
    drop(done(s.fs.create_file(&s.name)));
}

/// Creates and opens a file of `pages` written pages.
fn file_of(s: &mut Stage<'_>, pages: u64) {
    let options = FileOptions::new().read(true).write(true).create_new(true);
    let file = done(s.fs.open_file_with(&s.name, &options));
    (0..pages).for_each(|page| done(file.write_all_at(&s.page, page * PAGE)));
    s.held = Some(file);
}

fn a_small_file(s: &mut Stage<'_>) {
    file_of(s, 1);
}

fn a_file_of_pages(s: &mut Stage<'_>) {
    file_of(s, 4);
}

fn a_closed_file(s: &mut Stage<'_>) {
    file_of(s, 4);
    s.held = None;
}

fn an_unlinked_file(s: &mut Stage<'_>) {
    file_of(s, 4);
    done(s.fs.remove_file(&s.name));
}

fn a_sparse_file(s: &mut Stage<'_>) {
    file_of(s, 0);
    done(held(s).set_len(FILE));
}

fn a_coloured_file(s: &mut Stage<'_>) {
    an_empty_file(s);
    done(s.fs.set_xattr(&s.name, ATTRIBUTE, b"red"));
}

fn a_directory(s: &mut Stage<'_>) {
    done(s.fs.create_dir(&s.name));
}

fn two_names(s: &mut Stage<'_>) {
    an_empty_file(s);
    done(s.fs.hard_link(&s.name, &s.other));
}

fn two_files(s: &mut Stage<'_>) {
    an_empty_file(s);
    drop(done(s.fs.create_file(&s.other)));
}

fn a_way_out(s: &mut Stage<'_>) {
    an_empty_file(s);
    s.other = s.name.replacen(&s.home, &s.away, 1);
}
