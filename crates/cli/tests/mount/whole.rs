//! Tests of commands that work on a whole file system while it is mounted: they enlarge it, or
//! return its free blocks to the host.

use crate::mounting::*;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

fn lanefs(arguments: &[&str]) -> String {
    run(Command::new(LANEFS).args(arguments))
}

fn image(options: &[&str], size: &str) -> Image {
    let image = Image::new("8M");
    std::fs::remove_file(&image.path).unwrap();
    let path = image.path.to_str().unwrap();
    lanefs(&[&["mkfs", "-q", "--size", size][..], options, &[path]].concat());
    image
}

/// Returns how many bytes a file takes on the host.
fn taken(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().blocks() * 512
}

fn usable_blocks(mount: &Path) -> u64 {
    rustix::fs::statvfs(mount).unwrap().f_blocks
}

#[test]
#[ignore = "long: a real mount"]
fn a_mounted_image_grows_beside_writers_and_the_kernel_mounts_it() {
    if !needs("e2fsck") || !can_mount() {
        return;
    }
    for beneath in [Beneath::File, Beneath::Device] {
        let image = image(&[], "64M");
        if beneath == Beneath::Device {
            std::fs::File::options()
                .write(true)
                .open(&image.path)
                .unwrap()
                .set_len(400 << 20)
                .unwrap();
        }
        let Some(mounted) = Mounted::beneath(beneath, &image, &[]) else { return };
        let mount = mounted.path.to_str().unwrap();
        let before = usable_blocks(&mounted.path);
        std::thread::scope(|s| {
            for writer in 0..3 {
                let path = &mounted.path;
                s.spawn(move || {
                    let script = format!(
                        "for n in {{1..40}}; do mkdir d{writer}-$n
                         head -c 300K /dev/urandom >d{writer}-$n/f; done"
                    );
                    shell(path, &script);
                });
            }
            for size in ["90M", "+60M", "300M"] {
                lanefs(&["resize", mount, size]);
            }
        });
        assert!(usable_blocks(&mounted.path) > 4 * before, "{beneath:?}");
        // Writes more data than fits into the old size.
        shell(&mounted.path, "head -c 150M /dev/zero >large; sync; md5sum d*/f >/dev/null");
        let (status, said) = try_run(Command::new(LANEFS).args(["resize", mount, "100M"]));
        assert!(!status.success() && said.contains("smaller after lanefs umount"), "{said}");
        for blocks in [0, 1000] {
            let refused = lanefs_fuse::grow_mounted(&mounted.path, blocks).unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
        }
        let sums = shell(&mounted.path, "md5sum d*/f large | md5sum");
        mounted.umount();
        assert_clean(&image.path);
        let Some(kernel) = KernelMounted::new(&image.path, "kernel", "ro") else { return };
        assert_eq!(shell(&kernel.path, "md5sum d*/f large | md5sum"), sums);
    }
}

#[test]
#[ignore = "long: a real mount"]
fn the_server_is_killed_while_its_image_grows() {
    if !needs("e2fsck") || !can_mount() {
        return;
    }
    let kills: u64 = std::env::var("LANEFS_KILLS").map_or(6, |text| text.parse().unwrap());
    let mut rng = fastrand::Rng::with_seed(seed());
    let mut sizes = std::collections::BTreeMap::new();
    // Measures how long the growth takes if the server is not killed.
    let undisturbed = image(&["-b", "1024", "-E", "resize=500000"], "24M");
    let mounted = Mounted::new(&undisturbed, &[]);
    let began = std::time::Instant::now();
    lanefs(&["resize", "-q", mounted.path.to_str().unwrap(), "200M"]);
    let took = began.elapsed().as_micros() as u64;
    mounted.umount();
    for _ in 0..kills {
        let image = image(&["-b", "1024", "-E", "resize=500000"], "24M");
        let mounted = Mounted::in_foreground(&image, &[]);
        let path = mounted.path.clone();
        let writer = std::thread::spawn(move || {
            let script = "for n in {1..2000}; do mkdir d$n && echo $n >d$n/f || exit 0; done";
            Command::new("bash").args(["-c", script]).current_dir(&path).output().unwrap();
        });
        let mut growth = Command::new(LANEFS)
            .args(["resize", "-q"])
            .arg(&mounted.path)
            .arg("200M")
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_micros(rng.u64(..2 * took)));
        mounted.kill();
        growth.wait().unwrap();
        writer.join().unwrap();
        let status = Command::new(LANEFS).args(["recover", "-q"]).arg(&image.path).status();
        assert!(matches!(status.unwrap().code(), Some(0 | 1)));
        assert_clean(&image.path);
        let info = lanefs(&["info", "--json", image.path.to_str().unwrap()]);
        let info: serde_json::Value = serde_json::from_str(&info).unwrap();
        let size = info["block_count"].as_u64().or(info["blocks"].as_u64()).unwrap_or(0);
        *sizes.entry(size).or_insert(0) += 1;
    }
    println!("{kills} kills, sizes after recovery: {sizes:?}");
}

#[test]
#[ignore = "long: a real mount"]
fn free_blocks_of_a_mount_are_given_back_by_fstrim_and_by_discard() {
    if !needs("e2fsck") || !can_mount() {
        return;
    }
    let image = image(&[], "256M");
    let mounted = Mounted::new(&image, &[]);
    let fill = "head -c 100M /dev/urandom >large; head -c 10M /dev/urandom >kept; sync kept large";
    shell(&mounted.path, fill);
    let sum = shell(&mounted.path, "md5sum kept");
    let full = taken(&image.path);
    shell(&mounted.path, "rm large; sync -f .; sync kept");
    // The blocks become free when the deletion is committed.
    wait_for("the commit", std::time::Duration::from_secs(20), || {
        lanefs(&["trim", "-q", mounted.path.to_str().unwrap()]);
        taken(&image.path) + (90 << 20) < full
    });
    let bytes = shell(&mounted.path, "fstrim -v .");
    assert!(bytes.contains("trimmed"), "{bytes}");
    assert_eq!(shell(&mounted.path, "md5sum kept"), sum);
    mounted.umount();
    assert_clean(&image.path);
    let mounted = Mounted::new(&image, &["discard"]);
    assert_eq!(shell(&mounted.path, "md5sum kept"), sum);
    shell(&mounted.path, fill);
    let full = taken(&image.path);
    shell(&mounted.path, "rm large; sync kept");
    wait_for("the discard", std::time::Duration::from_secs(20), || {
        taken(&image.path) + (90 << 20) < full
    });
    mounted.umount();
    assert_clean(&image.path);
}
