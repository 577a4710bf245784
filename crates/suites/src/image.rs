//! Creates images with mke2fs, checks them with e2fsck, and mounts them with the kernel.

use crate::home;
use lanefs_device::{Access, Device, FileDevice, OpenOptions, OverlayDevice};
use lanefs_ext4::Fallocate;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

/// The configuration file that comes with mke2fs 1.47. It is used because a distribution's
/// configuration may set different features.
const CONFIG: &str = include_str!("../../ondisk/testdata/mke2fs.conf");

/// The way in which the files of an image map their blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mappings {
    /// By extents.
    #[default]
    Extents,
    /// By extents, in encrypted files. The blocks of an encrypted file cannot move to other offsets
    /// in the file.
    Encrypted,
    /// By indirect block maps. These have no unwritten blocks, so fallocate(2) can only punch
    /// holes.
    BlockMaps,
}

impl Mappings {
    /// Returns how new files map their blocks in an image that mke2fs makes with `options`.
    pub fn of(options: &str) -> Mappings {
        match ["ext2", "ext3", "^extent"].iter().any(|word| options.contains(word)) {
            true => Mappings::BlockMaps,
            false if home::is_encrypted(options) => Mappings::Encrypted,
            false => Mappings::Extents,
        }
    }

    /// Returns whether files support this mode of fallocate(2).
    pub fn support(self, how: Fallocate) -> bool {
        match self {
            Mappings::Extents => true,
            Mappings::Encrypted => {
                !matches!(how, Fallocate::CollapseRange | Fallocate::InsertRange)
            }
            Mappings::BlockMaps => how == Fallocate::PunchHole,
        }
    }
}

/// Returns the block size in an image that mke2fs makes with `options`, which must contain `-b`.
pub fn block_size_of(options: &str) -> u64 {
    let mut words = options.split_whitespace();
    let named = words.find(|word| *word == "-b").and_then(|_| words.next());
    named.and_then(|bytes| bytes.parse().ok()).unwrap_or(1024)
}

/// Returns the cluster size in an image that mke2fs makes with `options`. The options must contain
/// `-b` and, with `bigalloc`, `-C`. Without `bigalloc` a cluster is a block.
pub fn cluster_size_of(options: &str) -> u64 {
    let mut words = options.split_whitespace();
    let named = words.find(|word| *word == "-C").and_then(|_| words.next());
    named.and_then(|bytes| bytes.parse().ok()).unwrap_or(block_size_of(options))
}

/// A word among the options of [`Image::make`] that makes the root directory ignore case.
pub const FOLDING: &str = "+F";

/// An image file in memory; removed with its folder when dropped.
pub struct Image {
    folder: tempfile::TempDir,
    path: PathBuf,
}

/// Returns a folder for temporary files. It is in `/dev/shm`, which is in memory, if the machine
/// has this folder.
pub fn folder() -> tempfile::TempDir {
    let shm = Path::new("/dev/shm");
    let root = if shm.is_dir() { shm.to_path_buf() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("lanefs-suite-").tempdir_in(root).expect("a temporary folder")
}

impl Image {
    /// Runs mke2fs with `options` and `size`. The file system type is ext4, unless the options name
    /// another type. Returns `None` and prints the reason if mke2fs is missing. If the options
    /// contain the word [`FOLDING`], the root directory ignores case, and so do all directories
    /// that are created later. If the options contain the feature `encrypt`, the image has the
    /// encrypted directory of [`home`].
    pub fn make(options: &str, size: &str) -> Option<Image> {
        let image = Image::empty();
        let config = image.folder.path().join("mke2fs.conf");
        std::fs::write(&config, CONFIG).expect("the configuration");
        let names_type = options.split_whitespace().any(|word| word == "-t");
        let made = Command::new("mke2fs")
            .env("MKE2FS_CONFIG", &config)
            .args(["-q", "-F"])
            .args(if names_type { &[][..] } else { &["-t", "ext4"] })
            .args(options.split_whitespace().filter(|word| *word != FOLDING))
            .arg(&image.path)
            .arg(size)
            .output();
        match made {
            Ok(made) if made.status.success() => {
                if options.split_whitespace().any(|word| word == FOLDING) {
                    image.debugfs("set_inode_field <2> flags 0x40080000");
                }
                if home::is_encrypted(options) {
                    home::make(image.device()).expect("an encrypted directory");
                }
                Some(image)
            }
            Ok(made) => panic!("mke2fs {options} {size}: {}", text(&made)),
            Err(error) => {
                println!("skipped: mke2fs does not run here: {error}");
                None
            }
        }
    }

    /// Returns an image whose file does not exist yet.
    pub fn empty() -> Image {
        let folder = folder();
        Image { path: folder.path().join("image"), folder }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file for writing.
    pub fn device(&self) -> Arc<dyn Device> {
        let opened = FileDevice::open(&self.path, Access::ReadWrite, OpenOptions::default());
        Arc::new(opened.expect("the image opens"))
    }

    /// Runs e2fsck without repairs.
    pub fn check(&self) -> Verdict {
        self.e2fsck("-fn")
    }

    /// Runs e2fsck, which replays the log and repairs.
    pub fn repair(&self) -> Verdict {
        self.e2fsck("-fy")
    }

    /// Runs e2fsck with these options, separated by spaces.
    pub fn e2fsck(&self, how: &str) -> Verdict {
        let mut command = Command::new("e2fsck");
        let command = command.args(how.split_whitespace()).arg(&self.path);
        let output = command.output().expect("e2fsck runs");
        Verdict { status: output.status.code().unwrap_or(-1), text: text(&output) }
    }

    /// Runs a request of debugfs that changes the image; returns its output.
    pub fn debugfs(&self, request: &str) -> String {
        let mut debugfs = Command::new("debugfs");
        let output = debugfs.args(["-w", "-R", request]).arg(&self.path).output();
        String::from_utf8_lossy(&output.expect("debugfs runs").stdout).into_owned()
    }

    /// Returns the byte offset of the inode that a path or `<number>` names.
    pub fn inode_at(&self, inode: &str, block_size: u64) -> u64 {
        let said = self.debugfs(&format!("imap {inode}"));
        // For example: "located at block 123, offset 0x0300".
        let (_, after) = said.split_once("located at block ").expect("imap's words");
        let (block, offset) = after.trim().split_once(", offset 0x").expect("imap's words");
        let offset = u64::from_str_radix(offset, 16).expect("a number");
        block.parse::<u64>().expect("a number") * block_size + offset
    }

    /// Panics with the output of e2fsck if e2fsck finds a fault.
    #[track_caller]
    pub fn assert_clean(&self, context: &str) {
        let verdict = self.check();
        assert!(verdict.status == 0, "{context}: e2fsck -fn says {}", verdict.text);
    }

    /// Mounts the image with the kernel's ext4. Returns `None` and prints the reason if this
    /// process cannot mount.
    pub fn kernel_mount(&self, options: &str) -> Option<KernelMount> {
        self.kernel_mount_as("ext4", options)
    }

    /// Works like [`Image::kernel_mount`], with the type `kind`: `ext2`, `ext3` or `ext4`.
    pub fn kernel_mount_as(&self, kind: &str, options: &str) -> Option<KernelMount> {
        self.kernel_takes(kind, options).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Works like [`Image::kernel_mount_as`].
    ///
    /// # Errors
    /// If the kernel refuses the image.
    pub fn kernel_takes(&self, kind: &str, options: &str) -> Result<Option<KernelMount>, String> {
        match self.try_kernel_mount(kind, options, 20) {
            Ok(mount) => Ok(Some(mount)),
            Err(why) if may_mount() => Err(format!("the kernel does not mount it: {why}")),
            Err(why) => {
                println!("skipped: the kernel mounts nothing here: {}", why.trim());
                Ok(None)
            }
        }
    }

    /// Returns whether the kernel mounts the image.
    pub fn is_mounted_by_kernel(&self, kind: &str, options: &str) -> bool {
        self.try_kernel_mount(kind, options, 3).is_ok()
    }

    /// Mounts the image. If no loop device was free, tries again at most `tries` times.
    fn try_kernel_mount(
        &self,
        kind: &str,
        options: &str,
        tries: u32,
    ) -> Result<KernelMount, String> {
        let at = self.folder.path().join("mounted");
        std::fs::create_dir_all(&at).expect("a mount point");
        let loops = ["loop", options].into_iter().filter(|o| !o.is_empty()).collect::<Vec<_>>();
        let mut command = Command::new("mount");
        command.args(["-t", kind, "-o", &loops.join(",")]).args([&self.path, &at]);
        // The message contains "loop" if no loop device is free, and also if two concurrent mounts
        // choose the same free loop device.
        let busy = |output: &Output| !output.status.success() && text(output).contains("loop");
        let mut mounted = command.output();
        for _ in 0..tries {
            if !mounted.as_ref().is_ok_and(busy) || !may_mount() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
            mounted = command.output();
        }
        match mounted {
            Ok(output) if output.status.success() => Ok(KernelMount { at, mounted: true }),
            Ok(output) => Err(text(&output)),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Returns whether the machine has loop devices and this process is root. If not, a failed mount
/// does not count as a failed test.
fn may_mount() -> bool {
    rustix::process::geteuid().is_root() && Path::new("/dev/loop-control").exists()
}

/// An image file that is reused for many states of one base, one state after another.
pub struct Scratch {
    image: Image,
    len: u64,
    /// The ranges of the base that are not zeros.
    base: Vec<(u64, Vec<u8>)>,
}

impl Scratch {
    /// Prepares a file for states over `base`.
    ///
    /// # Errors
    /// If the base cannot be read.
    pub fn new(base: &dyn Device) -> std::io::Result<Scratch> {
        const PIECE: u64 = 16 << 10;
        let len = base.len();
        let mut pieces = Vec::new();
        for at in (0..len).step_by(PIECE as usize) {
            let mut bytes = vec![0; PIECE.min(len - at) as usize];
            base.read_at(at, &mut bytes).map_err(std::io::Error::other)?;
            if bytes.iter().any(|byte| *byte != 0) {
                pieces.push((at, bytes));
            }
        }
        Ok(Scratch { image: Image::empty(), len, base: pieces })
    }

    /// Writes `state` to the file and returns the image. The caller may change the image.
    ///
    /// # Errors
    /// Returns errors of the host.
    pub fn put(&self, state: &OverlayDevice) -> std::io::Result<&Image> {
        let file = std::fs::File::create(&self.image.path)?;
        for (at, bytes) in &self.base {
            file.write_all_at(bytes, *at)?;
        }
        for (at, bytes) in state.changes() {
            file.write_all_at(&bytes, at)?;
        }
        file.set_len(self.len)?;
        Ok(&self.image)
    }
}

/// The verdict of e2fsck.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// The exit code: 0 if nothing was found, 1 if everything was repaired, 4 if faults were not
    /// repaired.
    pub status: i32,
    /// The whole output of the program.
    pub text: String,
}

impl Verdict {
    /// Returns whether e2fsck only replayed the log and finished orphans, although it was allowed
    /// to repair.
    pub fn only_replayed(&self) -> bool {
        // These words show that e2fsck answered a question or worked around damage. Both count as
        // repairs.
        let text = without_truncated_trees(&without_orphan_file(&self.text));
        let bad = ["? yes", "WARNING", "IGNORED", "corrupt", "Invalid", "Error ", "aborted"];
        self.status <= 1 && !bad.iter().any(|word| text.contains(word))
    }
}

/// Removes messages about the orphan file from e2fsck's output. These messages are not about
/// damage, because e2fsck prints them for images of the kernel too: after e2fsck has processed the
/// orphans, it clears their entries and the feature flag that announces such entries.
fn without_orphan_file(text: &str) -> String {
    let mut kept = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let entries = line.starts_with("Orphan file (inode ") && line.ends_with("is not clean.");
        if entries || line == "Feature orphan_present is set but orphan file is clean." {
            lines.next();
        } else {
            kept += line;
            kept.push('\n');
        }
    }
    kept
}

/// Removes e2fsck's offers to shrink the extent trees of orphans that it has just truncated.
fn without_truncated_trees(text: &str) -> String {
    let truncated = |inode: &str| {
        let begins = format!("Truncating orphaned inode {inode} ");
        text.lines().any(|line| line.starts_with(&begins))
    };
    let is_offer = |line: &&str| {
        let rest =
            line.strip_prefix("Inode ").and_then(|rest| rest.split_once(" extent tree (at level "));
        rest.is_some_and(|(inode, offer)| {
            (offer.contains("could be shorter.") || offer.contains("could be narrower."))
                && truncated(inode)
        })
    };
    text.lines().filter(|line| !is_offer(line)).flat_map(|line| [line, "\n"]).collect()
}

/// A kernel mount; unmounted when dropped.
pub struct KernelMount {
    at: PathBuf,
    mounted: bool,
}

impl KernelMount {
    /// Returns the mount point.
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// Unmounts.
    pub fn unmount(mut self) {
        self.detach();
    }

    /// Stops the file system as a crash does, and unmounts it. Nothing writes to the image after
    /// this. A copy of a mounted image would mix blocks of different moments. Returns whether the
    /// file system could be stopped, and prints the reason if it could not.
    pub fn crash(self) -> bool {
        let output = Command::new("xfs_io").args(["-x", "-c", "shutdown"]).arg(&self.at).output();
        let said = output.map_or_else(|error| error.to_string(), |output| text(&output));
        if !said.is_empty() {
            println!("skipped: xfs_io cannot stop the file system: {}", said.trim());
        }
        said.is_empty()
    }

    fn detach(&mut self) {
        if !std::mem::take(&mut self.mounted) {
            return;
        }
        // Tries to unmount for a minute, because a child process of another test may have inherited
        // an open file of the mount. If that child is an e2fsck that checks 16 TiB, it takes a
        // while.
        for _ in 0..3000 {
            let done = Command::new("umount").arg(&self.at).output();
            if done.is_ok_and(|output| output.status.success()) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        eprintln!("could not unmount {}", self.at.display());
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        self.detach();
    }
}

fn text(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repaired(text: &str) -> Verdict {
        Verdict { status: 1, text: text.into() }
    }

    #[test]
    fn a_tree_that_e2fsck_truncated_itself_may_be_made_shorter_and_no_other() {
        let offer = "Inode 76 extent tree (at level 1) could be shorter.  Optimize? yes\n";
        let truncation = "Truncating orphaned inode 76 (uid=0, gid=0, mode=0100644, size=23680)\n";
        assert!(repaired(&format!("{truncation}Pass 1\n\n{offer}")).only_replayed());
        assert!(!repaired(offer).only_replayed());
        assert!(!repaired(&format!("{}{offer}", truncation.replace("76", "77"))).only_replayed());
        assert!(!repaired(&format!("{truncation}Free blocks wrong. Fix? yes\n")).only_replayed());
    }
}
