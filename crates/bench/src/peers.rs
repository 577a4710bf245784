//! Sets up other file systems to be compared with Lanefs, and removes them after the run.
//!
//! All mounts are in a private mount namespace of this process, and the images are in a file system
//! in memory that is mounted only in this namespace. The kernel kills the servers when this process
//! ends. So even if this process is killed, nothing remains except an empty directory, on which the
//! file system with the images was mounted.

use crate::error::{Error, Result};
use crate::host::HostDirectory;
use crate::library::{Library, Mounting};
use crate::programs::{call, find, make_image};
use crate::stop::Stop;
use crate::target::{Server, Target};
use lanefs_lanes::sync::Arc;
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The size of each image in bytes.
const IMAGE: u64 = 2 << 30;
/// How long a server may take to mount.
const PATIENCE: Duration = Duration::from_secs(20);

/// Replaces this process by `program` with `arguments` in a private mount namespace. Returns only
/// if this fails.
pub fn enter_private_mounts<S: AsRef<OsStr>>(
    program: &Path,
    arguments: impl IntoIterator<Item = S>,
) -> Error {
    if !rustix::process::geteuid().is_root() {
        let said = "mounting them needs root".into();
        return Error::Program { program: "peers".into(), said };
    }
    let unshare = match find("unshare") {
        Ok(unshare) => unshare,
        Err(error) => return error,
    };
    let mut command = Command::new(&unshare);
    command.args(["--mount", "--propagation", "private", "--"]).arg(program).args(arguments);
    Error::host(unshare.display().to_string(), command.exec())
}

/// The file systems that are compared with each other. Their images have the same size and are in
/// one tmpfs.
pub struct Peers {
    servers: Vec<Child>,
    dir: TempDir,
    stop: Arc<Stop>,
}

impl Peers {
    /// Mounts an empty file system in memory. Must be called in a private mount namespace. The
    /// caller must be the main thread, because the servers are killed when the thread that started
    /// them ends. `stop` interrupts the set-up.
    pub fn new(stop: Arc<Stop>) -> Result<Peers> {
        let dir = tempfile::Builder::new()
            .prefix("lanefs-bench-")
            .tempdir()
            .map_err(|e| Error::host("a temporary directory", e))?;
        let peers = Peers { servers: Vec::new(), dir, stop };
        call(Command::new(find("mount")?).args(["-t", "tmpfs", "lanefs-bench"]).arg(peers.top()))?;
        Ok(peers)
    }

    /// Sets up all file systems that this machine has. The first target is a mount that the program
    /// `lanefs` serves. Returns the targets, and an error for each file system that is missing.
    pub fn set_up(&mut self, lanefs: &Path) -> Result<(Vec<Target>, Vec<Error>)> {
        let mut targets = vec![self.lanefs_mounted(lanefs)?, self.lanefs_as_library()?];
        let mut missing = Vec::new();
        let others = [Peers::ext4, Peers::fuse2fs, Peers::xfs, Peers::tmpfs];
        for set_up in others {
            match set_up(self) {
                Ok(target) => targets.push(target),
                Err(Error::Interrupted) => return Err(Error::Interrupted),
                Err(error) => missing.push(error),
            }
        }
        Ok((targets, missing))
    }

    /// Sets up only the kernel's ext4.
    ///
    /// # Errors
    /// If the kernel's ext4 cannot be mounted.
    pub fn kernel_ext4(&mut self) -> Result<Target> {
        self.ext4()
    }

    fn top(&self) -> &Path {
        self.dir.path()
    }

    /// Creates an image and an empty directory.
    fn new_image(&self, name: &str) -> Result<(PathBuf, PathBuf)> {
        self.stop.check()?;
        let image = self.top().join(format!("{name}.img"));
        make_image(&image, IMAGE)?;
        Ok((image, self.new_directory(name)?))
    }

    fn new_directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.top().join(name);
        std::fs::create_dir(&path).map_err(|e| Error::host(path.display().to_string(), e))?;
        Ok(path)
    }

    fn lanefs_mounted(&mut self, lanefs: &Path) -> Result<Target> {
        let (image, dir) = self.new_image("lanefs-mount")?;
        let words =
            ["mount".into(), "--foreground".into(), image.into(), dir.clone().into_os_string()];
        self.served("Lanefs mounted", lanefs, &words, &dir)
    }

    fn lanefs_as_library(&mut self) -> Result<Target> {
        let (image, _) = self.new_image("lanefs-library")?;
        let place = Box::new(Library::open(&image, Mounting::default())?);
        Ok(Target { name: "Lanefs library".into(), place, server: Server::None })
    }

    fn fuse2fs(&mut self) -> Result<Target> {
        let fuse2fs = find("fuse2fs")?;
        let (image, dir) = self.new_image("fuse2fs")?;
        let words = ["-f".into(), image.into(), dir.clone().into_os_string()];
        self.served("fuse2fs", &fuse2fs, &words, &dir)
    }

    fn ext4(&mut self) -> Result<Target> {
        let (image, dir) = self.new_image("ext4")?;
        loop_mounted("kernel ext4", "ext4", &image, &dir)
    }

    fn xfs(&mut self) -> Result<Target> {
        let make = find("mkfs.xfs")?;
        let (image, dir) = (self.top().join("xfs.img"), self.new_directory("xfs")?);
        let file = std::fs::File::create(&image).and_then(|file| file.set_len(IMAGE));
        file.map_err(|e| Error::host(image.display().to_string(), e))?;
        call(Command::new(make).args(["-q", "-K"]).arg(&image))?;
        loop_mounted("kernel xfs", "xfs", &image, &dir)
    }

    fn tmpfs(&mut self) -> Result<Target> {
        let dir = self.new_directory("tmpfs")?;
        call(Command::new(find("mount")?).args(["-t", "tmpfs", "lanefs-bench"]).arg(&dir))?;
        mounted("tmpfs", &dir, Server::None)
    }

    /// Starts a FUSE server that stays in the foreground, and waits until it has mounted.
    fn served(
        &mut self,
        name: &str,
        program: &Path,
        arguments: &[OsString],
        dir: &Path,
    ) -> Result<Target> {
        let failed = |said: String| Error::Program { program: name.into(), said };
        let mut server = Command::new(find("setpriv")?)
            .args(["--pdeathsig", "KILL", "--"])
            .arg(program)
            .args(arguments)
            // The server gets its own process group, so that ^C at the terminal does not kill it
            // while the benchmark uses it.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| failed(e.to_string()))?;
        let (pid, mut errors) = (server.id(), server.stderr.take());
        self.servers.push(server);
        let begun = Instant::now();
        while !is_mounted(dir) {
            let ended = self.servers.last_mut().map(Child::try_wait);
            if !matches!(ended, Some(Ok(None))) {
                let mut said = String::new();
                if let Some(errors) = &mut errors {
                    // An error of this read is ignored. What has to be reported is that the server
                    // terminated; the server's output is only a detail.
                    let _ = errors.read_to_string(&mut said);
                }
                return Err(failed(format!("did not mount: {}", said.trim())));
            }
            self.stop.check()?;
            if begun.elapsed() > PATIENCE {
                return Err(failed("did not mount in time".into()));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        // The pipe is not read any more, so it is closed. If it stayed open, the server would block
        // when the pipe is full.
        drop(errors);
        mounted(name, dir, Server::Process(pid))
    }
}

impl Drop for Peers {
    fn drop(&mut self) {
        for server in &mut self.servers {
            // The server may have terminated already.
            let _ = server.kill();
            let _ = server.wait();
        }
        // After the unmount, the directory can be removed. If the unmount fails, an empty directory
        // remains.
        let _ = call(Command::new("umount").args(["--recursive", "--lazy"]).arg(self.top()));
    }
}

fn loop_mounted(name: &str, kind: &str, image: &Path, dir: &Path) -> Result<Target> {
    call(Command::new(find("mount")?).args(["-t", kind, "-o", "loop"]).arg(image).arg(dir))?;
    mounted(name, dir, Server::None)
}

fn mounted(name: &str, dir: &Path, server: Server) -> Result<Target> {
    Ok(Target { name: name.into(), place: Box::new(HostDirectory::open(dir)?), server })
}

/// Returns whether a file system is mounted on `dir` itself. Reads the kernel's mount list, since a
/// stat of a mount whose server is not ready would block.
fn is_mounted(dir: &Path) -> bool {
    let list = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    list.lines().filter_map(|line| line.split(' ').nth(4)).any(|point| Path::new(point) == dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_found_by_their_directory() {
        assert!(is_mounted(Path::new("/")));
        assert!(!is_mounted(Path::new("/proc/no-such-mount")));
    }
}
