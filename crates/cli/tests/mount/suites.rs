//! External suites on a mount: fsx and pjdfstest, both from crates.io.

use crate::mounting::*;
use crate::pjdfstest::{PJDFSTEST, pjdfstest, tool};
use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

/// The configuration of fsx. It includes operations of all kinds, and writes that cross page and
/// block boundaries. The file is so small that operations overlap.
const FSX: &str = "
flen = 1048576
[opsize]
max = 131072
[weights]
close_open = 1
invalidate = 1
mapread = 5
mapwrite = 5
read = 10
write = 10
truncate = 5
fsync = 1
fdatasync = 1
posix_fallocate = 2
punch_hole = 3
sendfile = 2
posix_fadvise = 1
copy_file_range = 3
";

/// Returns the number of fsx runs, each with its own seed and `OPERATIONS` operations. Returns
/// `None` if `LANEFS_FSX_RUNS` is not set. In this case the test makes two runs, and the time limit
/// determines the number of operations.
fn fsx_runs() -> Option<usize> {
    std::env::var("LANEFS_FSX_RUNS").ok().and_then(|text| text.parse().ok())
}

#[test]
#[ignore = "long: a real mount"]
fn fsx_finds_no_wrong_byte() {
    const OPERATIONS: u64 = 20_000;
    let Some(fsx) = tool("fsx") else { return };
    if !can_mount() {
        return;
    }
    let first_seed = seed() >> 2;
    let (runs, operations) = match fsx_runs() {
        Some(runs) => (runs, OPERATIONS),
        None => (2, seconds(5).as_secs() * 2000),
    };
    for run in 0..runs {
        let block_size = ["4096", "1024", "2048"][run % 3];
        let seed = first_seed + run as u64;
        let image = Image::with("256M", &["-b", block_size]);
        let config = image.dir.path().join("fsx.toml");
        fs::write(&config, FSX).unwrap();
        let beneath = [Beneath::Device, Beneath::File][run % 2];
        let Some(mounted) = Mounted::beneath(beneath, &image, &[]) else { continue };
        let (status, said) = try_run(
            Command::new(&fsx)
                .args(["-N", &operations.to_string(), "-S", &seed.to_string(), "-q", "-P"])
                .arg(image.dir.path())
                .arg("-f")
                .arg(&config)
                .arg(mounted.path.join("file")),
        );
        assert!(status.success(), "fsx -S {seed}, blocks of {block_size}, {beneath:?}: {said}");
        println!(
            "fsx -S {seed}, {beneath:?}: {operations} operations, blocks of {block_size} bytes"
        );
        mounted.umount();
        image.assert_clean();
    }
}

/// Cases that cannot pass on any FUSE mount, each with its reason.
const NOT_ON_FUSE: [(&str, &str); 1] = [(
    "link::link_count_max",
    "libc answers pathconf(_PC_LINK_MAX) from the type of the file system, and knows 127 for FUSE",
)];

#[test]
#[ignore = "long: a real mount"]
fn pjdfstest_passes_on_an_image_file_as_on_the_kernels_ext4() {
    pjdfstest_passes(Beneath::File);
}

#[test]
#[ignore = "long: a real mount"]
fn pjdfstest_passes_on_a_block_device_as_on_the_kernels_ext4() {
    pjdfstest_passes(Beneath::Device);
}

fn pjdfstest_passes(beneath: Beneath) {
    let Some(program) = tool("pjdfstest") else { return };
    if !can_mount() {
        return;
    }
    let (ours, theirs) = (Image::new("256M"), Image::new("256M"));
    let config = ours.dir.path().join("pjdfstest.toml");
    fs::write(&config, PJDFSTEST).unwrap();
    let Some(mounted) = Mounted::beneath(beneath, &ours, &[]) else { return };
    let here = pjdfstest(&program, &config, &mounted.path);
    mounted.umount();
    ours.assert_clean();
    let there = KernelMounted::new(&theirs.path, "kernel", "rw")
        .map(|kernel| pjdfstest(&program, &config, &kernel.path));
    let passes = |outcomes: &BTreeMap<String, String>, name: &str| {
        outcomes.get(name).is_some_and(|outcome| outcome == "ok")
    };
    // Without a comparison with the kernel, all cases that are not skipped must pass.
    let expected = there.as_ref().unwrap_or(&here);
    let missed: Vec<_> = expected
        .iter()
        .filter(|(_, outcome)| there.is_none() && *outcome != "skipped" || *outcome == "ok")
        .filter(|(name, _)| !passes(&here, name))
        .filter(|(name, _)| !NOT_ON_FUSE.iter().any(|(excluded, _)| excluded == name))
        .map(|(name, _)| name)
        .collect();
    let passed = here.values().filter(|outcome| *outcome == "ok").count();
    for (name, reason) in NOT_ON_FUSE {
        println!("skipped: pjdfstest {name}: {reason}");
    }
    println!("pjdfstest: {passed} of {} cases pass, {} missed", here.len(), missed.len());
    assert!(missed.is_empty(), "pass on the kernel's ext4, not here: {missed:#?}");
}
