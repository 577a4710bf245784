//! Checks that images have the contents of the directories and tars from which they are built. The
//! tree that the kernel shows must be equal to the tree of the directory, or to the tree that GNU
//! tar unpacks.

use crate::image;

use crate::image::{
    assert_same, build, build_from, can_mount, fill, scratch, shell, survey, survey_image,
    try_build,
};
use lanefs_build::{Builder, Source};

/// Returns a directory in memory, and a directory in it with one file of each kind.
fn filled() -> (tempfile::TempDir, std::path::PathBuf) {
    let dir = scratch();
    let tree = dir.path().join("tree");
    std::fs::create_dir(&tree).unwrap();
    fill(&tree);
    (dir, tree)
}

#[test]
fn a_directory_arrives_with_everything() {
    if !can_mount() {
        return;
    }
    let (dir, tree) = filled();
    let image = dir.path().join("a.img");
    let built = build_from(&image, Source::directory(&tree));
    assert_eq!(built.directories, 9);
    assert_same(&survey_image(&image), &survey(&tree));
    let stat = shell(dir.path(), "debugfs -R 'stat /many' a.img 2>&1");
    assert!(stat.contains("Flags: 0x81000"), "indexed: {stat}");
}

#[test]
fn a_file_of_more_than_four_gigabytes_keeps_its_size_and_its_end() {
    let dir = scratch();
    shell(
        dir.path(),
        "mkdir t; truncate -s 5G t/f; printf end >>t/f; tar -H pax --sparse -cf t.tar -C t .",
    );
    let path = |name: &str| dir.path().join(name);
    for source in [Source::directory(path("t")), Source::tar(path("t.tar"))] {
        let built = build_from(&path("a.img"), source);
        assert_eq!(built.data, 1, "all but the last block is a hole");
        let stat = shell(dir.path(), "debugfs -R 'stat /f' a.img 2>&1");
        assert!(stat.contains("Size: 5368709123"), "{stat}");
        assert!(stat.contains("(1310720):"), "{stat}");
    }
}

/// GNU tar unpacks each archive too. Its tree must be the same as the tree in the image.
#[test]
fn each_format_of_tar_gives_what_gnu_tar_gives() {
    if !can_mount() {
        return;
    }
    let (dir, _) = filled();
    let all = "--xattrs --xattrs-include='*'";
    let short = "--exclude longlink --exclude deep --exclude a/hole --exclude block";
    for (name, how) in [
        ("pax", format!("-H pax --sparse {all}")),
        ("pax-0.1", format!("-H pax --sparse --sparse-version=0.1 {all}")),
        ("pax-0.0", format!("-H pax --sparse --sparse-version=0.0 {all}")),
        ("pax-times", "-H pax --atime-preserve --pax-option=delete=mtime".into()),
        ("gnu", "-H gnu --sparse".into()),
        ("ustar", format!("-H ustar {short} --exclude c --exclude empty")),
        ("v7", format!("-H v7 {short} --exclude c --exclude empty --exclude char --exclude pipe")),
    ] {
        let tar = format!("{name}.tar");
        shell(dir.path(), &format!("tar {how} -cf {tar} -C tree . 2>/dev/null"));
        let unpacked = dir.path().join(name);
        std::fs::create_dir(&unpacked).unwrap();
        shell(
            &unpacked,
            &format!("tar -xpf ../{tar} --xattrs --xattrs-include='*' --numeric-owner"),
        );
        let image = dir.path().join(format!("{name}.img"));
        build_from(&image, Source::tar(dir.path().join(&tar)));
        println!("{name}");
        assert_same(&survey_image(&image), &survey(&unpacked));
        let sizes = shell(dir.path(), &format!("du -k --apparent-size {name}.img | cut -f1"));
        assert!(sizes.trim().parse::<u64>().unwrap() < 40 << 10, "{name}: holes stay holes");
        std::fs::remove_dir_all(&unpacked).unwrap();
        std::fs::remove_file(&image).unwrap();
    }
}

#[test]
fn packed_tars_give_the_same_image_from_a_file_and_from_a_stream() {
    let dir = scratch();
    shell(
        dir.path(),
        "mkdir t; seq 100000 >t/numbers; head -c 3M /dev/urandom >t/noise
        tar -cf t.tar -C t .; gzip -k t.tar; xz -k t.tar
        (head -c 1M t.tar | gzip; tail -c +1048577 t.tar | gzip) >twice.gz
        (cat t.tar.gz; head -c 5000 /dev/zero) >padded.gz
        (head -c 1M t.tar | zstd -q; printf '\\120\\052\\115\\030\\003\\000\\000\\000abc'
        tail -c +1048577 t.tar | zstd -q) >twice.zst
        zstd -q -k t.tar",
    );
    let digest = |name: &str, source| {
        let image = dir.path().join(format!("{name}.img"));
        build(&image, Builder::new().bytes(lanefs_build::Bytes::Same).source(source));
        let sum = shell(dir.path(), &format!("sha256sum <{name}.img"));
        std::fs::remove_file(&image).unwrap();
        sum
    };
    let plain = digest("plain", Source::tar(dir.path().join("t.tar")));
    for name in ["t.tar.gz", "t.tar.xz", "twice.gz", "padded.gz", "t.tar.zst", "twice.zst"] {
        let path = dir.path().join(name);
        assert_eq!(digest(name, Source::tar(&path)), plain, "{name}");
        let stream = std::fs::File::open(&path).unwrap();
        assert_eq!(digest(name, Source::stream(stream)), plain, "{name} as a stream");
    }
    // A compressed archive that ends early must result in an error, not in a smaller tree.
    let whole = std::fs::read(dir.path().join("t.tar.gz")).unwrap();
    let cut = std::io::Cursor::new(whole[..whole.len() / 2].to_vec());
    let image = dir.path().join("cut.img");
    let error = try_build(&image, Builder::new().source(Source::stream(cut))).unwrap_err();
    assert!(error.to_string().starts_with("stream: ./"), "{error}");
    // Foreign bytes between two zstd frames must also result in an error, even if they begin like a
    // frame without data.
    shell(dir.path(), "(head -c 1M t.tar | zstd -q; printf 'PK345678'; zstd -qc t.tar) >odd.zst");
    let error = try_build(&image, Builder::new().source(Source::tar(dir.path().join("odd.zst"))));
    assert!(error.unwrap_err().to_string().contains("its zstd stream is damaged"));
    shell(
        dir.path(),
        "for i in $(seq 200); do seq $i $((i + 300)) >s$i; done
        zstd -q --train s* -o dictionary --maxdict=4096; zstd -q -D dictionary t.tar -o dict.zst",
    );
    let error = try_build(&image, Builder::new().source(Source::tar(dir.path().join("dict.zst"))));
    assert!(error.unwrap_err().to_string().contains("it was compressed with a dictionary"));
    // A device without an end is not read.
    let error = try_build(&image, Builder::new().source(Source::tar("/dev/zero"))).unwrap_err();
    assert!(error.to_string().contains("it is a character device"), "{error}");
}

#[test]
fn lists_of_access_rights_arrive_from_directory_and_tar() {
    if !can_mount() {
        return;
    }
    let dir = scratch();
    let made = shell(
        dir.path(),
        "mkdir t; echo x >t/f; mkdir t/d
        setfacl -m u:1000:rw,g:7:r t/f && setfacl -d -m u:1000:rx t/d && echo ok || true
        tar -H pax --acls -cf named.tar -C t .; tar -H pax --acls --numeric-owner -cf n.tar -C t .",
    );
    if !made.contains("ok") {
        return;
    }
    for source in [
        Source::directory(dir.path().join("t")),
        Source::tar(dir.path().join("named.tar")),
        Source::tar(dir.path().join("n.tar")),
    ] {
        let image = dir.path().join("a.img");
        build_from(&image, source);
        let mounted = image::Mounted::new(&image);
        let lists = |path: &std::path::Path| shell(path, "getfacl -n -p f d");
        assert_same(&lists(mounted.path()), &lists(&dir.path().join("t")));
    }
}

#[test]
fn later_sources_win_and_merge() {
    let dir = scratch();
    shell(
        dir.path(),
        "mkdir -p one/d two/d; echo 1 >one/d/a; echo 1 >one/d/b; echo 2 >two/d/b; echo 2 >two/d/c
        tar -cf two.tar -C two .",
    );
    let image = dir.path().join("a.img");
    let sources = Builder::new()
        .source(Source::directory(dir.path().join("one")))
        .source(Source::tar(dir.path().join("two.tar")));
    let built = build(&image, sources);
    assert_eq!((built.files, built.directories), (3, 3));
    let cat = |name: &str| shell(dir.path(), &format!("debugfs -R 'cat /d/{name}' a.img 2>&1"));
    assert!(cat("a").ends_with("1\n") && cat("b").ends_with("2\n") && cat("c").ends_with("2\n"));
}
