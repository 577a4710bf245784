//! Archives that are unusual, damaged or hostile. Each archive must result in an error that names
//! the entry, or in a tree that refers to nothing outside of the image.

use crate::archive::{file, header, link, pax, seal};
use crate::image::{assert_clean, build, build_in, build_with, scratch, shell, try_build};
use lanefs_build::{Builder, Built, MkfsOptions, Room, Source, Spare};
use std::io::Cursor;
use std::path::Path;

fn outcome(dir: &Path, parts: &[Vec<u8>]) -> Result<Built, String> {
    let mut bytes = parts.concat();
    bytes.resize(bytes.len() + 1024, 0);
    raw_outcome(dir, bytes)
}

fn raw_outcome(dir: &Path, bytes: Vec<u8>) -> Result<Built, String> {
    let image = dir.join("a.img");
    let source = Source::stream(Cursor::new(bytes));
    let built = try_build(&image, Builder::new().source(source)).map_err(|error| error.to_string());
    if built.is_ok() {
        assert_clean(&image);
    }
    built
}

/// Asserts that an archive is refused with this message.
fn refused(dir: &Path, parts: &[Vec<u8>], message: &str) {
    let error = outcome(dir, parts).expect_err(message);
    assert_eq!(error, format!("stream: {message}"));
}

#[test]
fn names_and_links_that_lead_out_of_the_tree_are_refused() {
    let dir = scratch();
    let dir = dir.path();
    refused(dir, &[file("../evil", b"x")], "../evil: the name leaves the tree by '..'");
    refused(dir, &[file("a/../../evil", b"x")], "a/../../evil: the name leaves the tree by '..'");
    let target = "the link leads to '../../etc/passwd', which is not in the tree";
    refused(dir, &[link("h", b'1', "../../etc/passwd")], &format!("h: {target}"));
    let target = "the link leads to '/etc/passwd', which is not in the tree";
    refused(dir, &[link("h", b'1', "/etc/passwd")], &format!("h: {target}"));
    refused(dir, &[link("h", b'1', "h")], "h: the link leads to 'h', which is not in the tree");
    let directory = header(b"d/", b'5', 0, b"");
    let parts = [directory, link("h", b'1', "d")];
    refused(dir, &parts, "h: the link leads to 'd', a directory");
}

#[test]
fn a_symbolic_link_on_the_way_stays_inside_of_the_image() {
    let dir = scratch();
    let outside = dir.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    let target = outside.to_str().unwrap();
    let parts = [link("up", b'2', "../../.."), file("up/one", b"1"), link("abs", b'2', target)];
    let built = outcome(dir.path(), &[parts.concat(), file("abs/two", b"2")]).unwrap();
    assert_eq!(built.files, 4);
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
    let cat = |path: &str| shell(dir.path(), &format!("debugfs -R 'cat {path}' a.img 2>/dev/null"));
    assert_eq!(cat("/one"), "1");
    assert_eq!(cat(&format!("{target}/two")), "2");
    let circle = [link("a", b'2', "b"), link("b", b'2', "a"), file("a/x", b"")];
    refused(dir.path(), &circle, "a/x: too many symbolic links in the name");
}

#[test]
fn absolute_names_lie_below_the_root() {
    let dir = scratch();
    outcome(dir.path(), &[file("/etc/motd", b"x"), file("./a//b/./c", b"y")]).unwrap();
    let list = shell(dir.path(), "debugfs -R 'cat /etc/motd' a.img; debugfs -R 'cat /a/b/c' a.img");
    assert_eq!(list, "xy");
}

#[test]
fn of_two_entries_with_one_name_the_later_counts() {
    let dir = scratch();
    let kept = link("other", b'1', "f");
    let built = outcome(dir.path(), &[file("f", b"old"), kept, file("f", b"new")]).unwrap();
    assert_eq!(built.files, 2);
    let cat = |name: &str| shell(dir.path(), &format!("debugfs -R 'cat {name}' a.img 2>/dev/null"));
    assert_eq!((cat("f").as_str(), cat("other").as_str()), ("new", "old"));
    // The blocks of a replaced file are not reused within one archive, so the image becomes larger.
    let big = vec![7u8; 4 << 20];
    let one = outcome(dir.path(), &[file("f", &big)]).unwrap();
    let two = outcome(dir.path(), &[file("f", &big), file("f", &big)]).unwrap();
    assert!(two.report.blocks > one.report.blocks, "a stream keeps its order");
    let parts = [file("d/x", b""), file("d", b"")];
    refused(dir.path(), &parts, "d: there is a directory with files of this name already");
    refused(dir.path(), &[file("f", b""), file("f/x", b"")], "f/x: 'f' is not a directory");
}

#[test]
fn a_broken_archive_is_refused_where_it_breaks() {
    let dir = scratch();
    let dir = dir.path();
    let mut wrong = header(b"f", b'0', 0, b"");
    wrong[0] = b'g';
    let message = "the checksum of its header is wrong";
    refused(dir, &[wrong], message);
    let whole = file("f", &[1; 5000]);
    let error = raw_outcome(dir, whole[..3000].to_vec()).unwrap_err();
    assert_eq!(error, "stream: f: the archive ends in the middle of it");
    let error = raw_outcome(dir, [file("f", b""), vec![b'x'; 100]].concat()).unwrap_err();
    assert_eq!(error, "stream: after f: the archive ends in the middle of it");
    // Like other programs, Lanefs accepts an archive without the two blocks of zeros at its end.
    raw_outcome(dir, file("f", b"x")).unwrap();
    refused(dir, &[header(b"f", b'M', 0, b"")], "f: an entry of type 'M' is not supported");
    let mut bad = header(b"f", b'0', 0, b"");
    bad[108..115].copy_from_slice(b"abcdefg");
    seal(&mut bad);
    refused(dir, &[bad], "f: its header has no valid uid");
    raw_outcome(dir, Vec::new()).unwrap();
}

#[test]
fn a_source_that_is_no_archive_is_called_that() {
    let dir = scratch();
    let say = |bytes: &[u8]| raw_outcome(dir.path(), bytes.to_vec()).unwrap_err();
    let plain = "it must be a plain tar, or one compressed by gzip, zstd or xz";
    assert_eq!(say(b"hello\n"), format!("stream: not a tar archive: {plain}"));
    assert_eq!(say(&[b'x'; 5000]), format!("stream: not a tar archive: {plain}"));
    let unpack = "it is a zip archive, so unpack it first";
    assert_eq!(say(b"PK\x03\x04"), format!("stream: not a tar archive: {unpack}"));
    let garbage = [file("f", b"x"), vec![b'x'; 512]].concat();
    assert_eq!(say(&garbage), "stream: after f: the checksum of its header is wrong");
}

#[test]
fn extended_headers_are_bounded_and_checked() {
    let dir = scratch();
    let dir = dir.path();
    let huge = header(b"p", b'x', (1 << 33) - 1, b"");
    let message = "p: an extended header of 8589934591 bytes; at most 8388608 are accepted";
    refused(dir, &[huge], message);
    let name = "n".repeat(300);
    let long = [pax(&[("path", &name)]), file("f", b"")];
    let message = "the name is empty, or a part of it is longer than 255 bytes or has a NUL";
    refused(dir, &long, &format!("{name}: {message}"));
    let record = "its extended header has a malformed record";
    let times = [pax(&[("mtime", "soon")]), file("f", b"")];
    refused(dir, &times, &format!("f: {record} 'mtime'"));
    let kind = [pax(&[("SCHILY.xattr.btrfs.x", "1")]), file("f", b"")];
    let message = "/f: attribute btrfs.x: ext4 does not store attributes of this kind";
    assert_eq!(outcome(dir, &kind).unwrap_err(), message);
    let value = "v".repeat(8000);
    let large = [pax(&[("SCHILY.xattr.user.x", &value)]), file("f", b"")];
    let error = outcome(dir, &large).unwrap_err();
    assert!(error.starts_with("/f: extended attributes of 8006 bytes"), "{error}");
    let late = [pax(&[("mtime", "99999999999")]), file("f", b"")];
    let error = outcome(dir, &late).unwrap_err();
    assert!(error.starts_with("/f: a time outside of the years 1901 to 2446"), "{error}");
}

#[test]
fn records_of_libarchive_are_used() {
    let dir = scratch();
    let records = pax(&[
        ("LIBARCHIVE.creationtime", "1234567890.5"),
        ("LIBARCHIVE.xattr.user.a%3Db", "AAEC/w"),
        ("LIBARCHIVE.xattr.user.both", "b2xk"),
        ("SCHILY.xattr.user.both", "new"),
    ]);
    outcome(dir.path(), &[records, file("f", b"x")]).unwrap();
    let debugfs =
        |command: &str| shell(dir.path(), &format!("debugfs -R '{command}' a.img 2>/dev/null"));
    let stat = debugfs("stat f");
    assert!(stat.contains("crtime: 0x499602d2:77359400"), "{stat}");
    assert_eq!(debugfs("ea_get -x f user.a=b").trim(), "user.a=b (4) = 00 01 02 ff");
    assert_eq!(debugfs("ea_get -V f user.both").trim(), "new");
}

#[test]
fn a_damaged_compressed_stream_is_refused() {
    let dir = scratch();
    shell(
        dir.path(),
        "head -c 100000 /dev/urandom >f; tar -cf a.tar f; for c in gzip zstd xz; do
            $c -k -c a.tar >a.$c; done",
    );
    for name in ["a.gzip", "a.zstd", "a.xz"] {
        let bytes = std::fs::read(dir.path().join(name)).unwrap();
        raw_outcome(dir.path(), bytes.clone()).unwrap();
        let format = name.trim_start_matches("a.");
        let message = format!("its {format} stream is damaged or ends too early");
        for (damage, cut) in [(1, 0), (0, 1), (0, 50_000)] {
            let mut bytes = bytes.clone();
            bytes[50_000] ^= damage;
            bytes.truncate(bytes.len() - cut);
            let error = raw_outcome(dir.path(), bytes).unwrap_err();
            assert!(error.ends_with(&message), "{error}");
        }
    }
}

#[test]
fn an_archive_of_xz_that_demands_too_much_memory_is_refused() {
    let dir = scratch();
    shell(dir.path(), "echo x >f; tar -c f | xz >a.xz");
    // The header of the first block asks for a dictionary of 4 GiB.
    let mut bytes = std::fs::read(dir.path().join("a.xz")).unwrap();
    let end = 12 + (usize::from(bytes[12]) + 1) * 4;
    let filter = (14..end).find(|at| bytes[*at..].starts_with(&[0x21, 1])).unwrap();
    bytes[filter + 2] = 40;
    let mut sum = flate2::Crc::new();
    sum.update(&bytes[12..end - 4]);
    bytes[end - 4..end].copy_from_slice(&sum.sum().to_le_bytes());
    let error = raw_outcome(dir.path(), bytes).unwrap_err();
    assert!(error.ends_with("needs more memory than the 512 MiB that are allowed"), "{error}");
}

#[test]
fn no_size_in_a_header_is_too_large_to_be_refused() {
    let dir = scratch();
    let dir = dir.path();
    let records = pax(&[("size", "18446744073709551615")]);
    let message = "d: the archive ends in the middle of it";
    refused(dir, &[records, link("d", b'D', "")], message);
    // The data is in block 2^32 - 1, the last one whose number fits in 32 bits.
    let records = [("GNU.sparse.map", "17592186040320,5"), ("GNU.sparse.size", "17592186044416")];
    let message = "f: 17592186040325 bytes are more than a file of this file system holds";
    refused(dir, &[pax(&records), file("f", b"abcde")], message);
}

/// What follows the header of a link, device, directory or pipe is the next header, as in GNU tar,
/// Go and libarchive. Otherwise an archive could hide files from one program and show them to
/// another.
#[test]
fn sizes_of_entries_without_data_are_ignored() {
    let dir = scratch();
    let hidden = file("hidden", b"");
    for kind in *b"123456" {
        for stated in [0, 512] {
            let target: &[u8] = if matches!(kind, b'1' | b'2') { b"f" } else { b"" };
            let size = if stated == 0 { pax(&[("size", "512")]) } else { Vec::new() };
            let odd = [size, header(b"odd", kind, stated, target)].concat();
            let parts = [file("f", b"x"), odd, file("empty", b""), file("data", &hidden)];
            outcome(dir.path(), &parts).unwrap();
            let names = shell(dir.path(), "debugfs -R 'ls -p /' a.img 2>/dev/null | cut -d/ -f6");
            let mut names: Vec<&str> = names.split_whitespace().collect();
            names.sort_unstable();
            let expected = [".", "..", "data", "empty", "f", "lost+found", "odd"];
            assert_eq!(names, expected, "type {}", char::from(kind));
        }
    }
}

/// GNU tar and Go agree on these archives, and differ from what the words of pax suggest.
#[test]
fn of_two_extended_headers_the_later_counts() {
    let dir = scratch();
    let first = pax(&[("path", "one"), ("size", "0")]);
    outcome(dir.path(), &[first, pax(&[("comment", "c")]), file("f", b"x")]).unwrap();
    assert_eq!(shell(dir.path(), "debugfs -R 'cat /f' a.img 2>/dev/null"), "x");
    // A global header between an entry and its extended header takes nothing from the latter.
    let mut global = pax(&[("uid", "7")]);
    global[156] = b'g';
    seal(&mut global[..512]);
    outcome(dir.path(), &[pax(&[("path", "new")]), global, file("f", b"y")]).unwrap();
    assert_eq!(shell(dir.path(), "debugfs -R 'cat /new' a.img 2>/dev/null"), "y");
    let stat = shell(dir.path(), "debugfs -R 'stat /new' a.img 2>/dev/null");
    assert!(stat.contains("User:     7"), "{stat}");
}

#[test]
fn records_that_no_file_can_have_are_not_kept_in_memory() {
    let dir = scratch();
    let dir = dir.path();
    let large = "v".repeat(7 << 20);
    let records = ["a", "b", "c"].map(|key| pax(&[(key, &large)])).concat();
    let error = outcome(dir, &[records.clone(), file("f", b"")]).unwrap_err();
    assert!(error.ends_with("bytes; at most 16777216 are accepted"), "{error}");
    let mut globals = records;
    let kinds =
        (0..globals.len()).step_by(512).filter(|at| globals[at + 257..].starts_with(b"ustar"));
    for at in kinds.collect::<Vec<_>>() {
        globals[at + 156] = b'g';
        seal(&mut globals[at..at + 512]);
    }
    let error = outcome(dir, &[globals, file("f", b"")]).unwrap_err();
    assert!(error.ends_with("bytes; at most 16777216 are accepted"), "{error}");
    // Short records take more memory than their bytes.
    let keys: Vec<String> = (0..300_000).map(|n| format!("k{n}")).collect();
    let short: Vec<_> = keys.iter().map(|key| (key.as_str(), "v")).collect();
    let error = outcome(dir, &[pax(&short), file("f", b"")]).unwrap_err();
    assert!(error.ends_with("bytes; at most 16777216 are accepted"), "{error}");
    // A record that replaces an earlier one does not count twice.
    let same = [pax(&[("a", &large)]), pax(&[("a", &large)]), pax(&[("a", &large)])];
    outcome(dir, &[same.concat(), file("f", b"")]).unwrap();
    let target = pax(&[("linkpath", &"t".repeat(4096))]);
    let message = "l: a target of 4096 bytes; the file system allows 4095";
    refused(dir, &[target, link("l", b'2', "")], message);
    let attribute = pax(&[("SCHILY.xattr.user.x", &large)]);
    let message = "f: extended attributes of 7340054 bytes; at most 131072 are accepted";
    refused(dir, &[attribute, file("f", b"")], message);
    let names: Vec<String> = (0..6000).map(|n| format!("SCHILY.xattr.user.{n}")).collect();
    let empty: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
    let error = outcome(dir, &[pax(&empty), file("f", b"")]).unwrap_err();
    assert!(error.contains("f: extended attributes of 1"), "{error}");
}

#[test]
fn records_of_a_global_header_hold_until_they_are_replaced() {
    let dir = scratch();
    let mut global = pax(&[("uid", "7"), ("gid", "8"), ("SCHILY.xattr.user.x", "global")]);
    global[156] = b'g';
    seal(&mut global[..512]);
    let other = pax(&[("uid", "9"), ("gid", ""), ("SCHILY.xattr.user.x", "own")]);
    let parts = [global, file("a", b""), other, file("b", b""), file("c", b"")];
    outcome(dir.path(), &parts).unwrap();
    let debugfs =
        |command: &str| shell(dir.path(), &format!("debugfs -R '{command}' a.img 2>/dev/null"));
    for (name, user, group, value) in
        [("a", "7", "8", "global"), ("b", "9", "0", "own"), ("c", "7", "8", "global")]
    {
        let stat = debugfs(&format!("stat {name}"));
        let words: Vec<&str> = stat.split_whitespace().collect();
        let of = |key: &str| words.iter().position(|word| *word == key).map(|at| words[at + 1]);
        assert_eq!((of("User:"), of("Group:")), (Some(user), Some(group)), "{name}");
        assert_eq!(debugfs(&format!("ea_get -V {name} user.x")).trim(), value, "{name}");
    }
}

#[test]
fn maps_of_holes_are_checked() {
    let dir = scratch();
    let dir = dir.path();
    let sparse = |map: &str, size: &str, data: &[u8]| {
        let records = [("GNU.sparse.map", map), ("GNU.sparse.size", size)];
        [pax(&records), file("f", data)]
    };
    outcome(dir, &sparse("0,2,700,3", "1000000000000", b"abcde")).unwrap();
    for (map, size) in [("0,9", "100"), ("700,3,0,2", "1000"), ("0,5", "4"), ("0,x", "100")] {
        refused(dir, &sparse(map, size, b"abcde"), "f: its map of holes is not valid");
    }
    let endless = sparse("18446744073709551000,5", "18446744073709551615", b"abcde");
    let error = outcome(dir, &endless).unwrap_err();
    assert!(error.contains("f: 18446744073709551005 bytes are more than"), "{error}");
}

#[test]
fn as_many_links_as_ext4_allows_and_no_more() {
    let dir = scratch();
    let links = |count: u32| -> Vec<Vec<u8>> {
        let links = (1..count).map(|n| link(&format!("d/{n}"), b'1', "f"));
        std::iter::once(file("f", b"x")).chain(links).collect()
    };
    let built = outcome(dir.path(), &links(65_000)).unwrap();
    assert_eq!(built.files, 1);
    let error = outcome(dir.path(), &links(65_001)).unwrap_err();
    assert_eq!(error, "/d/1: 65001 hard links; ext4 allows 65000");
}

/// 50,000 names of 251 bytes in blocks of 1 KiB fill 16,667 leaves; two levels lead to 15,621.
#[test]
fn a_third_level_of_an_index_needs_large_dir() {
    use lanefs_ondisk::features::Incompat;
    let dir = scratch();
    let tree = dir.path().join("t");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("f"), "").unwrap();
    (0..50_000)
        .for_each(|n| std::fs::hard_link(tree.join("f"), tree.join(format!("{n:0>251}"))).unwrap());
    let block_size = lanefs_ondisk::BlockSize::new(1024);
    let image = dir.path().join("a.img");
    for is_large in [false, true] {
        let mut options = MkfsOptions { block_size, ..MkfsOptions::default() };
        options.features.incompat.set(Incompat::LARGE_DIR, is_large);
        let builder = Builder::new().source(Source::directory(&tree));
        let built = build_in(&image, options, Room::Fitted(Spare::default()), builder);
        assert_eq!(built.is_ok(), is_large, "{:?}", built.err().map(|error| error.to_string()));
    }
    assert_clean(&image);
    let index = shell(dir.path(), "debugfs -R 'htree_dump /' a.img 2>/dev/null | head -20");
    assert!(index.contains("Indirect levels: 2"), "{index}");
}

#[test]
fn a_fitted_image_with_small_blocks_has_an_inode_for_each_file() {
    let dir = scratch();
    // These files need two groups. 4,108 inodes per group would fill whole blocks of the inode
    // tables, but not whole bytes of the bitmaps, and 4,104 would be too few.
    let files: Vec<Vec<u8>> = (0..8203).map(|n| link(&n.to_string(), b'6', "")).collect();
    let source = Source::stream(Cursor::new(files.concat()));
    let block_size = lanefs_ondisk::BlockSize::new(1024);
    let options = MkfsOptions { block_size, ..MkfsOptions::default() };
    build_with(&dir.path().join("a.img"), options, Builder::new().source(source));
}

/// Changes a real archive at random places. Building from it must result in an image that e2fsck
/// accepts, or in an error.
#[test]
fn no_damage_of_an_archive_damages_an_image() {
    let dir = scratch();
    shell(
        dir.path(),
        "mkdir -p t/a/b; echo x >t/a/f; ln t/a/f t/g; ln -s a t/l; seq 2000 >t/a/b/n
        truncate -s 1M t/s; echo e >>t/s; tar -H pax --sparse -cf p.tar -C t .
        tar -H gnu --sparse -cf g.tar -C t .",
    );
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for name in ["p.tar", "g.tar"] {
        let whole = std::fs::read(dir.path().join(name)).unwrap();
        for _ in 0..150 {
            let mut bytes = whole.clone();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
                // Half of the changed headers get a correct checksum, so that their fields are
                // parsed.
                let start = at / 512 * 512;
                if random.bool() && bytes[start + 257..].starts_with(b"ustar") {
                    seal(&mut bytes[start..start + 512]);
                }
            }
            if random.u8(..) < 40 {
                bytes.truncate(random.usize(..bytes.len()));
            }
            let _ = raw_outcome(dir.path(), bytes);
        }
    }
    let image = dir.path().join("b.img");
    build(&image, Builder::new().source(Source::tar(dir.path().join("p.tar"))));
}
