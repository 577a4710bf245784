//! Reports the server's result to the command that unmounts the file system and waits for that
//! result.
//!
//! The server has an unnamed file, and holds a lock on it as long as the server runs. When it
//! terminates, it writes its result to the file. An attribute of the mount's root directory has the
//! value `PID FD INODE`, from which the command derives the path `/proc/PID/fd/FD`. The command
//! opens the file before it unmounts. Then it waits for the lock, which the host releases when the
//! server terminates for any reason, and reads the result. No file remains on disk. In contrast to
//! a socket, this file needs no protection by the server, because the kernel lets only root and the
//! server's user open it.

use crate::protocol::Errno;
use crate::service::Control;
use rustix::fd::AsRawFd;
use rustix::fs::{FlockOperation, MemfdFlags};
use rustix::io::Errno as Host;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

const ATTRIBUTE: &str = "system.lanefs_ending";
/// The content of the result file after success.
const WELL: &[u8] = b"+";
/// The command reads at most this many bytes of the result file.
const MOST: u64 = 4096;
/// How many times the command asks the server for the result file if the server does not answer or
/// names a file that does not exist, and how long the command pauses between two tries. While a
/// server is being killed, some of its threads may still answer although the file is closed
/// already.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(20);

/// The result file, on the side of the server.
#[derive(Debug)]
pub struct Ending {
    file: File,
}

impl Ending {
    /// Creates the unnamed file of this process.
    ///
    /// # Errors
    /// The host has no memory for the file.
    pub fn new() -> io::Result<Ending> {
        let file = File::from(rustix::fs::memfd_create(c"lanefs-ending", MemfdFlags::CLOEXEC)?);
        rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
        Ok(Ending { file })
    }

    /// Returns the [`Control`] that serves the attribute. The attribute's value consists of the
    /// process id, the file's descriptor and the file's inode number.
    ///
    /// # Errors
    /// The file's inode number cannot be read.
    pub fn control(&self) -> io::Result<Box<dyn Control>> {
        let process = rustix::process::getpid().as_raw_nonzero();
        let inode = rustix::fs::fstat(&self.file)?.st_ino;
        Ok(Box::new(Place(format!("{process} {} {inode}", self.file.as_raw_fd()))))
    }

    /// Records that the server terminates, with success or with these messages. Errors are ignored.
    pub fn record(mut self, failures: &[String]) {
        let text = failures.join("\n");
        let _ = self.file.write_all(if failures.is_empty() { WELL } else { text.as_bytes() });
        // The host releases the lock when the process exits, after all its descriptors are closed.
        std::mem::forget(self.file);
    }
}

struct Place(String);

impl Control for Place {
    fn get(&self, name: &[u8]) -> Option<Vec<u8>> {
        (name == ATTRIBUTE.as_bytes()).then(|| self.0.clone().into_bytes())
    }

    fn set(&self, _: &[u8], _: &[u8]) -> Option<Result<(), Errno>> {
        None
    }
}

/// How a server terminated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// The image is closed, and all changes are in it.
    Well,
    /// The server terminated with these messages.
    Failed(String),
    /// The server left no result: it was killed, or crashed.
    Killed,
}

/// The result file, on the side of the command that unmounts.
#[derive(Debug)]
pub struct Watch {
    file: Option<File>,
}

impl Watch {
    /// Opens the result file of the server whose mount is on `path`. The mount must still exist.
    /// Returns `None` if the file cannot be opened, because the server is an older version, belongs
    /// to another user or is in another PID namespace.
    ///
    /// # Errors
    /// The root of the mount cannot be read.
    pub fn of(path: &Path) -> io::Result<Option<Watch>> {
        let mut last = Ok(None);
        for _ in 0..TRIES {
            let mut value = [0; 64];
            let found = match rustix::fs::getxattr(path, ATTRIBUTE, &mut value[..]) {
                Ok(len) => open(&String::from_utf8_lossy(value.get(..len).unwrap_or_default())),
                // The server has terminated already.
                Err(Host::NOTCONN | Host::CONNABORTED | Host::CONNREFUSED) => {
                    return Ok(Some(Watch { file: None }));
                }
                // The mount belongs to another user, and the kernel hides its attributes.
                Err(Host::OPNOTSUPP | Host::NODATA | Host::ACCESS) => return Ok(None),
                // The server was killed while it read the request, or the mount is damaged.
                Err(error @ Host::IO) => {
                    last = Err(error.into());
                    Found::Missing
                }
                Err(error) => return Err(error.into()),
            };
            match found {
                Found::Open(file) => return Ok(Some(Watch { file: Some(file) })),
                Found::Closed => return Ok(None),
                Found::Missing => std::thread::sleep(PAUSE),
            }
        }
        last
    }

    /// Waits until the server has terminated.
    ///
    /// # Errors
    /// The result cannot be read.
    pub fn wait(self) -> io::Result<Ended> {
        let Some(file) = self.file else { return Ok(Ended::Killed) };
        rustix::io::retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::LockShared))?;
        let mut text = Vec::new();
        file.take(MOST).read_to_end(&mut text)?;
        Ok(match text.as_slice() {
            b"" => Ended::Killed,
            WELL => Ended::Well,
            text => Ended::Failed(String::from_utf8_lossy(text).into_owned()),
        })
    }
}

/// The file that a server's attribute describes.
#[derive(Debug)]
enum Found {
    Open(File),
    /// The server belongs to another user. Or the server is in another PID namespace, and in this
    /// namespace its PID belongs to another process.
    Closed,
    /// The process has terminated, or no longer has this descriptor open.
    Missing,
}

/// Opens the file that the server's attribute describes, and checks its inode number.
fn open(value: &str) -> Found {
    let numbers: Vec<u64> = value.split(' ').map_while(|number| number.parse().ok()).collect();
    let [process, fd, inode] = numbers[..] else { return Found::Closed };
    match File::open(format!("/proc/{process}/fd/{fd}")) {
        Ok(file) => match rustix::fs::fstat(&file) {
            Ok(found) if found.st_ino == inode => Found::Open(file),
            _ => Found::Closed,
        },
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound => Found::Missing,
            _ => Found::Closed,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(ending: &Ending) -> Watch {
        let place = ending.control().unwrap().get(ATTRIBUTE.as_bytes()).unwrap();
        match open(&String::from_utf8(place).unwrap()) {
            Found::Open(file) => Watch { file: Some(file) },
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_result_of_a_server_is_read_after_its_end() {
        let ending = Ending::new().unwrap();
        let (watched, mut file) = (watch(&ending), ending.file.try_clone().unwrap());
        let waiter = std::thread::spawn(move || watched.wait().unwrap());
        file.write_all(b"the journal failed").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!waiter.is_finished());
        drop((file, ending));
        assert_eq!(waiter.join().unwrap(), Ended::Failed("the journal failed".into()));
    }

    #[test]
    fn a_server_that_left_nothing_was_killed() {
        let ending = Ending::new().unwrap();
        let watched = watch(&ending);
        drop(ending);
        assert_eq!(watched.wait().unwrap(), Ended::Killed);
        let is_closed = |value| matches!(open(value), Found::Closed);
        assert!(is_closed("1 0 1") && is_closed("") && is_closed("x y z"));
        assert!(matches!(open("4000000000 0 1"), Found::Missing));
    }
}
