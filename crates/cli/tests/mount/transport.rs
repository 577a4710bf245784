//! Tests of the transport of requests: read(2), or io_uring if root has enabled it
//! (`scripts/with-ring`).

use crate::mounting::*;
use rustix::fs::{SeekFrom, seek};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const SWITCH: &str = "/sys/module/fuse/parameters/enable_uring";

/// Returns the value of a counter of the mount.
pub fn counter(mount: &Path, name: &str) -> u64 {
    let said = run(Command::new(LANEFS).args(["stats", "--json"]).arg(mount));
    let (_, rest) = said.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{said}"));
    let digits: String =
        rest.trim_start().chars().take_while(|digit| digit.is_ascii_digit()).collect();
    digits.parse().unwrap()
}

fn is_by_ring() -> bool {
    std::env::var_os("LANEFS_TRANSPORT").is_some_and(|name| name == "ring")
}

/// Returns whether a test can mount and get its requests by io_uring; if not, prints the reason.
fn needs_ring() -> bool {
    if !is_by_ring() {
        println!("skipped: FUSE over io_uring: not run by scripts/with-ring");
    }
    is_by_ring() && can_mount()
}

#[test]
#[ignore = "long: a real mount"]
fn a_mount_reports_its_transport() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    let said = run(lanefs_mount(&image.path, &image.mount_point(), &["transport=read"]).arg("-v"));
    let mounted = Mounted::already(&image.mount_point());
    assert!(said.contains("requests by read(2), as asked"), "{said}");
    assert_eq!(counter(&mounted.path, "transport.queues"), 0);
    let table = run(Command::new(LANEFS).arg("stats").arg(&mounted.path));
    assert_eq!(table.contains("the kernel has io_uring too"), is_by_ring(), "{table}");
    mounted.umount();
    let said = run(lanefs_mount(&image.path, &image.mount_point(), &["transport=ring"]).arg("-v"));
    let mounted = Mounted::already(&image.mount_point());
    let table = run(Command::new(LANEFS).arg("stats").arg(&mounted.path));
    if is_by_ring() {
        assert!(said.contains("requests by io_uring"), "{said}");
        assert!(table.contains("requests by io_uring"), "{table}");
        assert!(counter(&mounted.path, "transport.queues") > 0);
    } else if fs::read_to_string(SWITCH).is_ok_and(|state| state.starts_with('N')) {
        assert!(said.contains(SWITCH), "{said}");
        assert!(table.contains("requests by read(2); no io_uring"), "{table}");
        // Without -v, the message that requests come by read(2) is a warning.
        mounted.umount();
        let said = run(&mut lanefs_mount(&image.path, &image.mount_point(), &["transport=ring"]));
        let mounted = Mounted::already(&image.mount_point());
        assert!(said.contains("WARNING: requests by read(2)"), "{said}");
        return mounted.umount();
    }
    mounted.umount();
    image.assert_clean();
}

#[test]
#[ignore = "long: a real mount"]
fn each_processor_has_its_requests_served() {
    if !needs_ring() {
        return;
    }
    let image = Image::new("64M");
    let mounted = Mounted::new(&image, &["no_writeback"]);
    let processors = run(Command::new("nproc").arg("--all"));
    for processor in 0..processors.trim().parse().unwrap() {
        let processor: u32 = processor;
        let line = format!(
            "taskset -c {processor} sh -euc 'mkdir d{processor}; cd d{processor}; \
             for i in 1 2 3 4 5 6 7 8; do dd if=/dev/urandom of=f$i bs=1M count=3 status=none; done; \
             cat f* | wc -c; rm f1'",
        );
        assert_eq!(shell(&mounted.path, &line).trim(), (24 << 20).to_string());
    }
    // The server always gets FORGET requests by read(2).
    wait_for("the unlinked files to be forgotten", Duration::from_secs(20), || {
        counter(&mounted.path, "request.forget.count") > 0
    });
    mounted.umount();
    image.assert_clean();
}

#[test]
#[ignore = "long: a real mount"]
fn a_search_for_holes_that_has_pages_flushed_does_not_wait_for_itself() {
    if !needs_ring() {
        return;
    }
    let image = Image::new("64M");
    let mounted = Mounted::new(&image, &[]);
    for n in 0..50 {
        let mut file = File::create(mounted.path.join(format!("file {n}"))).unwrap();
        file.write_all(&[7; 300_000]).unwrap();
        assert_eq!(seek(&file, SeekFrom::Hole(0)).unwrap(), 300_000);
    }
    mounted.umount();
    image.assert_clean();
}

/// Starts programs that use the mount continuously; each exits at its first error.
fn load(mount: &Path) -> Vec<std::process::Child> {
    let line = "i=0; while :; do i=$((i + 1)); echo $i >f$$ || exit 1; \
                dd if=f$$ of=/dev/null bs=4k status=none || exit 1; \
                sync f$$ || exit 1; rm f$$ || exit 1; done";
    let client = |_| {
        let mut command = Command::new("sh");
        command.args(["-c", line]).current_dir(mount).stderr(std::process::Stdio::null());
        command.spawn().unwrap()
    };
    (0..8).map(client).collect()
}

fn assert_all_end(clients: Vec<std::process::Child>) {
    let end = Instant::now() + Duration::from_secs(20);
    for mut client in clients {
        while client.try_wait().unwrap().is_none() {
            if Instant::now() > end {
                let _ = client.kill();
                panic!("a client hangs");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

#[test]
#[ignore = "long: a real mount"]
fn a_killed_server_leaves_no_client_waiting() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    for round in 0..5 {
        let mut mounted = Mounted::in_foreground(&image, &[]);
        let clients = load(&mounted.path);
        std::thread::sleep(Duration::from_millis(200 + 50 * round));
        mounted.server().kill().unwrap();
        assert_all_end(clients);
        mounted.kill();
    }
}

#[test]
#[ignore = "long: a real mount"]
fn an_aborted_connection_ends_server_and_clients() {
    if !can_mount() {
        return;
    }
    let image = Image::new("64M");
    let control = image.dir.path().join("control");
    fs::create_dir(&control).unwrap();
    let mut command = Command::new("mount");
    if !try_run(command.args(["-t", "fusectl", "fusectl"]).arg(&control)).0.success() {
        println!("skipped: an aborted connection: there is no fusectl");
        return;
    }
    let _control = Mounted::already(&control);
    let mut mounted = Mounted::in_foreground(&image, &[]);
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let path = mounted.path.to_str().unwrap().to_owned();
    let line = table.lines().find(|line| line.split(' ').nth(4) == Some(&path)).unwrap();
    let minor = line.split(' ').nth(2).unwrap().split_once(':').unwrap().1.to_owned();
    let clients = load(&mounted.path);
    std::thread::sleep(Duration::from_millis(300));
    fs::write(control.join(minor).join("abort"), "1").unwrap();
    assert_all_end(clients);
    let server = mounted.server();
    wait_for("the server's end", Duration::from_secs(20), || server.try_wait().unwrap().is_some());
}
