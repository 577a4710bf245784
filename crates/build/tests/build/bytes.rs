//! Tests that the same sources give the same bytes, that a fitted image has room for its files and
//! little else, and that owners follow the maps, fixed owners and tables.

use crate::archive::{entry, file, header, link, pax};
use crate::image;

use crate::image::{assert_clean, build, scratch, shell, try_build};
use lanefs_build::{Builder, Bytes, MkfsOptions, Owners, Room, Source, Spare, Table};
use lanefs_device::RamDevice;
use lanefs_mkfs::Kind;
use lanefs_ondisk::BlockSize;
use std::os::unix::fs::FileExt;

fn tree(dir: &std::path::Path) {
    shell(
        dir,
        "mkdir -p t/a t/b/c; for i in {1..400}; do head -c $((i*97)) /dev/urandom >t/a/$i; done
        truncate -s 20M t/b/sparse; head -c 5M /dev/urandom >>t/b/sparse
        ln t/a/7 t/b/c/link; ln -s x t/b/c/s; find t -exec touch -h -d '2021-05-06 07:08:09.5' {} +",
    );
}

#[test]
fn ten_builds_on_any_number_of_threads_from_shuffled_sources_are_one() {
    let dir = scratch();
    tree(dir.path());
    let image = dir.path().join("a.img");
    let mut digests = std::collections::BTreeSet::new();
    for run in 0..10 {
        // The host may list the files of each new copy in a different order. Half of the copies are
        // made without holes.
        let sparse = if run % 2 == 0 { "always" } else { "never" };
        shell(
            dir.path(),
            &format!(
                "rm -rf copy; mkdir -p copy/b/c copy/a; cd t
                find . -type f -o -type l | sort -R | while read f; do
                cp -d --sparse={sparse} $f ../copy/$f; done; cd ../copy; ln -f a/7 b/c/link
                find . -exec touch -h -d '2021-05-06 07:08:09.5' {{}} +"
            ),
        );
        let options = MkfsOptions { time: Some(1_600_000_000), ..Default::default() };
        let builder = Builder::new()
            .bytes(Bytes::Same)
            .threads(1 + run % 5)
            .source(Source::directory(dir.path().join("copy")));
        image::build_with(&image, options, builder);
        digests.insert(shell(dir.path(), "sha256sum <a.img"));
    }
    assert_eq!(digests.len(), 1, "{digests:?}");
    // One changed byte changes the UUID too.
    shell(
        dir.path(),
        "printf X | dd of=copy/a/9 conv=notrunc status=none
        touch -d '2021-05-06 07:08:09.5' copy/a/9",
    );
    let uuid = |name: &str| {
        let source = Source::directory(dir.path().join(name));
        build(&image, Builder::new().bytes(Bytes::Same).source(source)).report.uuid
    };
    assert_ne!(uuid("copy"), uuid("t"));
    assert_eq!(uuid("t"), uuid("t"));
}

#[test]
fn a_fitted_image_holds_its_files_and_little_else() {
    let dir = scratch();
    tree(dir.path());
    let source = || Source::directory(dir.path().join("t"));
    let image = dir.path().join("a.img");
    let built = build(&image, Builder::new().source(source()));
    assert_eq!(built.report.free_blocks, 0);
    // A device that is only as large as the data of the files has no room for the metadata.
    let device = RamDevice::create(built.data * 4096).unwrap();
    let error = Builder::new().source(source()).build(&device).unwrap_err();
    assert!(error.to_string().contains("the files do not fit into"), "{error}");
    for spare in [Spare { bytes: 300 << 20, percent: 0 }, Spare { bytes: 0, percent: 50 }] {
        let device = RamDevice::create(1 << 30).unwrap();
        let room = Room::Fitted(spare);
        let spared = Builder::new().room(room).source(source()).build(&device).unwrap();
        let more = spared.report.free_blocks * 4096;
        let wanted = spare.bytes + built.bytes() * u64::from(spare.percent) / 100;
        assert!(more >= wanted && more < wanted + (4 << 20), "{more} for {wanted}");
    }
}

#[test]
fn a_small_tree_in_an_image_with_much_free_space_has_the_journal_of_that_size() {
    let dir = scratch();
    shell(dir.path(), "mkdir t; echo x >t/x");
    let built = |spare| {
        let device = RamDevice::create(2 << 30).unwrap();
        let source = Source::directory(dir.path().join("t"));
        Builder::new().room(Room::Fitted(spare)).source(source).build(&device).unwrap().report
    };
    let large = built(Spare { bytes: 1 << 30, percent: 0 });
    // The size of the journal that mke2fs makes in a file system of 1 to 2 GiB.
    assert_eq!(large.journal_blocks, 8 << 10);
    assert!(large.features.iter().any(|name| name == "orphan_file"));
    assert!(large.free_blocks >= (1 << 30) / 4096);
    assert_eq!(built(Spare { bytes: 1 << 20, percent: 0 }).journal_blocks, 0);
}

/// Tries sizes near the start of each block group, with each block size, with and without a
/// journal.
#[test]
fn fitted_images_of_all_sizes_are_clean() {
    let dir = scratch();
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let image = dir.path().join("a.img");
    let tree = dir.path().join("t");
    std::fs::create_dir_all(&tree).unwrap();
    for round in 0..40 {
        let bits = random.u32(10..=12);
        // The number of bytes in a group, which has as many blocks as a block has bits.
        let group = 8u64 << (2 * bits);
        let groups = random.u64(1..4 << (2 * (12 - bits)).min(4));
        let size = (groups * group + random.u64(..600 << bits)).saturating_sub(500 << bits);
        let size = size.min(300 << 20);
        let file = std::fs::File::create(tree.join("big")).unwrap();
        file.set_len(size).unwrap();
        // Each block gets a word that is not zero, so no block becomes a hole.
        for at in (0..size.saturating_sub(8)).step_by(1 << bits) {
            file.write_all_at(&random.u64(1..).to_le_bytes(), at).unwrap();
        }
        let options = MkfsOptions {
            block_size: lanefs_ondisk::BlockSize::new(1 << bits),
            journal: match random.bool() {
                true => lanefs_mkfs::JournalSize::None,
                false => lanefs_mkfs::JournalSize::BySize,
            },
            ..Default::default()
        };
        println!("round {round}: {size} bytes, {options:?}");
        let spare = Spare { bytes: 0, percent: random.u32(..3) * 20 };
        let source = Source::directory(&tree);
        image::build_in(&image, options, Room::Fitted(spare), Builder::new().source(source))
            .unwrap();
        assert_clean(&image);
    }
}

#[test]
fn owners_follow_the_rules() {
    let dir = scratch();
    shell(
        dir.path(),
        "mkdir t; echo x >t/f; mkdir t/d; echo y >t/d/g
        tar --owner=1000 --group=1001 --numeric-owner -cf t.tar -C t .",
    );
    let image = dir.path().join("a.img");
    let stat =
        |name: &str| shell(dir.path(), &format!("debugfs -R 'stat {name}' a.img 2>/dev/null"));
    let source = || Source::tar(dir.path().join("t.tar"));
    let map = |text: &str| vec![text.parse().unwrap()];
    let owners =
        Owners { users: map("1000:100000:5"), groups: map("1000:200000:5"), ..Owners::default() };
    build(&image, Builder::new().owners(owners).source(source()));
    assert!(stat("/d/g").contains("User: 100000   Group: 200001"), "{}", stat("/d/g"));
    let owners = Owners { users: map("0:100000:1000"), ..Owners::default() };
    let error = try_build(&image, Builder::new().owners(owners).source(source())).unwrap_err();
    assert!(error.to_string().contains("user 1000 is in none of the maps"), "{error}");
    // The rules also apply to a directory that the tar has no entry for.
    shell(dir.path(), "tar --owner=1000 --group=0 --numeric-owner -cf only.tar -C t d/g");
    let only = || Source::tar(dir.path().join("only.tar"));
    let users = map("0:100000:2000");
    let owners = Owners { users: users.clone(), groups: users, ..Owners::default() };
    build(&image, Builder::new().owners(owners).source(only()));
    assert!(stat("/d").contains("User: 100000   Group: 100000"), "{}", stat("/d"));
    build(
        &image,
        Builder::new()
            .owners(Owners { all: Some((7, 8)), ..Owners::default() })
            .table(Table::parse("table", "/dev/console c 600 0 5 5 1 - - -").unwrap())
            .source(only()),
    );
    assert!(stat("/d").contains("User:     7   Group:     8"), "{}", stat("/d"));
    let owners = Owners { users: map("1000:100000:5"), ..Owners::default() };
    let error = try_build(&image, Builder::new().owners(owners).source(only())).unwrap_err();
    assert!(error.to_string().ends_with(": d: user 0 is in none of the maps"), "{error}");
    let owners = Owners { all: Some((7, 8)), ..Owners::default() };
    let table = "# name type mode uid gid major minor start inc count
        /f f 4755 70000 1 - - - - -
        /dev d 755 0 0 - - - - -
        /dev/console c 600 0 5 5 1 - - -
        /dev/tty c 666 0 5 4 0 1 1 4
        /d r 700 3 4 - - - - -";
    let table = Table::parse("table", table).unwrap();
    build(&image, Builder::new().owners(owners).table(table).source(source()));
    assert!(stat("/f").contains("Mode:  04755") && stat("/f").contains("User: 70000"));
    assert!(stat("/d/g").contains("User:     3   Group:     4"), "{}", stat("/d/g"));
    // As genext2fs makes them: tty1 to tty3.
    assert!(stat("/dev/tty1").contains("04:00"), "{}", stat("/dev/tty1"));
    assert!(stat("/dev/tty3").contains("04:02"), "{}", stat("/dev/tty3"));
    assert!(!stat("/dev/tty4").contains("04:"), "{}", stat("/dev/tty4"));
    let wrong = Table::parse("table", "/f f 4755\n/g x 1 1 1\n").unwrap_err();
    assert_eq!(wrong.to_string(), "table: line 2: type 'x' is none of f, d, r, c, b, p");
    let table = Table::parse("table", "/none f 644 0 0 - - - - -").unwrap();
    let error = try_build(&image, Builder::new().table(table).source(source())).unwrap_err();
    assert_eq!(error.to_string(), "table: line 1: /none: the file is missing");
}

/// Returns bytes that look random and are the same on every machine.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 1u32;
    let next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// The SHA-256 of the images below. A change that gives other bytes is one for users of
/// `--reproducible`: change the digest, and say so in CHANGELOG.md.
const RECORDED: [&str; 10] = [
    "48250fd1e9143a0fc0fa12724e244a094bb179de54fb596259c5c7dd05f5c2f5",
    "42d4fc486406b62b4444e79962245c0ec735abe0558dbb6b5b0fe68236e6fe36",
    "ac907166f0d342cba6e0c379fffb3ef081a4d1e9169062676035bc8db9df2b0a",
    "046f6655e230cb69bc265b54e99cc580d84e94f4290cff0bed2d9f677b513b39",
    "473efa5377e7d1bb55166fc21d34636af15b76722e9f9d358058c08a3e46cbf7",
    "fc4bfa8d27e90d3b63bdfd79a8e7df74602a00e2ecfcc89faa255b2d6e9906d3",
    "36b8ac64423625052117da4773aebfbf3dcae716641f5434962a79eac74475b7",
    "7f4866da9446b2eeefd44eda053c0aacee272b995750b3df9c0d9a5f59fd0ef7",
    "e3a8b2c86ab536693b1e28d185980357130f344874716492e013d446192db646",
    "f6093269b52838c479e128897ae43f6d34cacf95c07ac45af672dbfd7dc786e4",
];

#[test]
fn recorded_builds_have_the_same_bytes_in_every_version() {
    let small = [
        pax(&[("mtime", "1600000000.25"), ("SCHILY.xattr.user.a", "value")]),
        file("etc/motd", b"welcome\n"),
        link("etc/same", b'1', "etc/motd"),
        link("lib", b'2', "usr/lib"),
        link(&"l".repeat(90), b'2', &"t".repeat(90)),
        header(b"usr/lib/", b'5', 0, b""),
        header(b"pipe", b'6', 0, b""),
        file("noise", &noise(300_000)),
        entry(header(b"zeros", b'0', 100_000, b""), &[0; 100_000]),
    ];
    let many = (0..3000).map(|n| file(&format!("many/a-name-of-some-length-{n}"), b""));
    let large: Vec<Vec<u8>> = many.chain([file("noise", &noise(3_000_000))]).collect();
    let dated = MkfsOptions { time: Some(1_500_000_000), ..MkfsOptions::default() };
    let options = [
        MkfsOptions::default(),
        MkfsOptions { features: Kind::Ext2.features(), size: Some(32 << 20), ..dated.clone() },
        MkfsOptions {
            features: Kind::Ext3.features(),
            inode_size: 128,
            size: Some(48 << 20),
            ..dated.clone()
        },
        MkfsOptions { features: MkfsOptions::debian_12(), label: b"debian".to_vec(), ..dated },
        MkfsOptions { block_size: BlockSize::new(1024), ..MkfsOptions::default() },
    ];
    let dir = scratch();
    let image = dir.path().join("a.img");
    let mut found = Vec::new();
    for entries in [&small[..], &large] {
        let tar = [entries.concat(), vec![0; 1024]].concat();
        for options in &options {
            let source = Source::stream(std::io::Cursor::new(tar.clone()));
            let builder = Builder::new().bytes(Bytes::Same).source(source);
            let fitted = Room::Fitted(Spare { bytes: 1 << 20, percent: 0 });
            let room = options.size.map_or(fitted, |_| Room::Given);
            image::build_in(&image, options.clone(), room, builder).unwrap();
            assert_clean(&image);
            let sum = shell(dir.path(), "sha256sum <a.img");
            found.push(sum.split(' ').next().unwrap().to_owned());
        }
    }
    assert_eq!(found, RECORDED);
}
