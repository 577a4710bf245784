//! The message that the kernel's ext4 logs about a hostile image, for comparison with the error of
//! Lanefs.

use std::path::Path;
use std::process::Command;

/// The largest number of files that are visited.
const VISITS: usize = 600;

/// Mounts `image`, reads everything in it, and returns the kernel's first message; `None` if this
/// process cannot set up a loop device. The image may change.
pub fn says(image: &Path) -> Option<String> {
    let at = image.with_extension("mounted");
    std::fs::create_dir_all(&at).ok()?;
    let attached = run("losetup", &["--show", "-f", image.to_str()?])?;
    let name = attached.trim().to_string();
    let since = uptime();
    let mounted = run("mount", &["-t", "ext4", "-o", "errors=continue", &name, at.to_str()?]);
    if mounted.is_some() {
        walk(&at);
        run("umount", &[at.to_str()?]);
    }
    // If umount failed, the loop device is detached at the end of the mount.
    run("losetup", &["-d", &name]);
    let words = words(name.trim_start_matches("/dev/"), since);
    Some(match (mounted, words) {
        (Some(_), None) => "mounts".into(),
        (Some(_), Some(words)) => format!("mounts: {words}"),
        (None, words) => format!("refuses: {}", words.unwrap_or_default()),
    })
}

fn run(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn uptime() -> f64 {
    let text = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    text.split_whitespace().next().and_then(|secs| secs.parse().ok()).unwrap_or(0.0)
}

/// Parts of messages that are not about damage.
const ROUTINE: [&str; 6] = [
    "mounted filesystem",
    "unmounting",
    "recovery complete",
    "orphan inode deleted",
    "orphan inodes deleted",
    "cleaned up",
];
/// The number of characters after which a message is cut off, so that it fits into a table.
const WORDS: usize = 120;

/// Returns the first message about `device` that the kernel logged after `since` (the uptime in
/// seconds) and that is not routine.
fn words(device: &str, since: f64) -> Option<String> {
    let log = run("dmesg", &[])?;
    log.lines().find_map(|line| {
        let (time, text) = line.strip_prefix('[')?.split_once("] ")?;
        let later = time.trim().parse::<f64>().is_ok_and(|time| time >= since - 0.01);
        let ours = text.contains("EXT4-fs") || text.contains("VFS") || text.contains("JBD2");
        let ours = ours && text.contains(device);
        if !later || !ours || ROUTINE.iter().any(|word| text.contains(word)) {
            return None;
        }
        let mut said = text.replace(&format!(" ({device})"), "");
        said = said.replace(&format!(" (device {device})"), "");
        // Removes the name of the process.
        if let Some((before, after)) = said.split_once(" comm ") {
            let after = after.split_once(": ").map_or("", |(_, after)| after);
            said = format!("{before} {after}");
        }
        Some(said.replace('|', "/").chars().take(WORDS).collect())
    })
}

fn walk(root: &Path) {
    let mut todo = vec![root.to_path_buf()];
    let mut left = VISITS;
    while let Some(dir) = todo.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            left = left.saturating_sub(1);
            if left == 0 {
                return;
            }
            let path = entry.path();
            let Ok(meta) = path.symlink_metadata() else { continue };
            if meta.is_dir() {
                todo.push(path);
            } else if meta.is_symlink() {
                let _ = path.read_link();
            } else if meta.is_file() {
                read_some(&path);
            }
        }
    }
}

fn read_some(path: &Path) {
    use std::io::Read;
    let Ok(file) = std::fs::File::open(path) else { return };
    let _ = file.take(1 << 20).read_to_end(&mut Vec::new());
}
