//! The directory in which the suites work. Usually this is the root directory. On an image with
//! encryption, it is an encrypted subdirectory, because the root directory itself cannot be
//! encrypted.

use lanefs_device::Device;
use lanefs_ext4::{Error, Fs, InodeRef, MasterKey, Mount, MountOptions, NewInode, NewKind};
use lanefs_ondisk::encryption::Policy;
use lanefs_ondisk::features::Incompat;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// The name of the encrypted directory.
const NAME: &str = "encrypted";

/// The bytes of the key.
const KEY: [u8; 64] = *b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+-";

/// Returns the default mount options, with the key of the encrypted directory added.
pub fn options() -> MountOptions {
    let key = MasterKey::new(&KEY).expect("64 bytes");
    MountOptions { keys: vec![key], ..MountOptions::default() }
}

/// Returns whether the suites work in an encrypted directory of an image that mke2fs makes with
/// `options`.
pub fn is_encrypted(options: &str) -> bool {
    options.contains("encrypt")
}

/// Creates the encrypted directory in a fresh image.
pub(crate) fn make(device: Arc<dyn Device>) -> Result<(), Error> {
    let (mount, options) = (Mount::open(device, options())?, options());
    let key = options.keys.first().map(|key| *key.identifier()).unwrap_or_default();
    let kind = NewKind::Directory;
    let new = NewInode { kind, permissions: 0o755, umask: 0, uid: 0, gid: 0 };
    let dir = mount.fs().create(&mount.fs().root()?, NAME.as_bytes(), &new)?;
    mount.fs().set_encryption_policy(&dir, &Policy::aes_256(key))?;
    drop(dir);
    mount.close()
}

/// Returns the directory in which the suites work.
pub fn of_library(fs: &Fs) -> Result<InodeRef, Error> {
    let root = fs.root()?;
    if !fs.superblock().features().incompat.contains(Incompat::ENCRYPT) {
        return Ok(root);
    }
    Ok(fs.find(&root, NAME.as_bytes())?.unwrap_or(root))
}

/// Gives the kernel the key, and returns the directory in which the suites work on a mount of the
/// kernel. Returns `None` and prints the reason if xfs_io is missing.
pub fn of_kernel(mounted: &Path) -> Option<PathBuf> {
    let dir = mounted.join(NAME);
    if !dir.is_dir() {
        return Some(mounted.to_path_buf());
    }
    let mut command = Command::new("xfs_io");
    let command = command.args(["-c", "add_enckey"]).arg(&dir).stdin(Stdio::piped());
    let mut child = match command.stdout(Stdio::null()).spawn() {
        Ok(child) => child,
        Err(error) => {
            println!("skipped: xfs_io does not run here: {error}");
            return None;
        }
    };
    let mut pipe = child.stdin.take().expect("piped");
    std::io::Write::write_all(&mut pipe, &KEY).expect("xfs_io reads the key");
    drop(pipe);
    let status = child.wait().expect("xfs_io ends");
    assert!(status.success(), "the kernel does not take the key");
    Some(dir)
}
