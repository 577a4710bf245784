//! What a parser that a hostile image took over would try. Part of `lanefs` only if that is built
//! for the test `jail`.

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};
use rustix::process::{Pid, Signal};
use std::fs;
use std::io;
use std::net::{TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::Path;
use std::process::Command;

/// Tries everything and prints each outcome to the standard error, if the environment names a
/// folder to work in. Then tries it again from a new thread.
pub fn attempt() {
    let Some(folder) = std::env::var_os("LANEFS_MISBEHAVE") else { return };
    let folder = Path::new(&folder);
    all(folder, "");
    std::thread::scope(|scope| drop(scope.spawn(|| all(folder, "thread ")).join()));
}

fn all(folder: &Path, by: &str) {
    let victim = &folder.join("victim");
    let name = |end: &str| folder.join(format!("{}{end}", by.trim()));
    let told = |file: &str| std::env::var(file).unwrap_or_default();
    let tell = |what: &str, done: io::Result<()>| {
        let done = done.map_or_else(|error| error.kind().to_string(), |()| "done".into());
        eprintln!("tried {by}{what}: {done}");
    };
    let now = Timespec { tv_sec: 1, tv_nsec: 1 };
    let times = Timestamps { last_access: now, last_modification: now };
    tell("make", fs::write(name("new"), "x"));
    tell("write", fs::OpenOptions::new().write(true).open(victim).map(drop));
    tell("truncate", fs::OpenOptions::new().write(true).truncate(true).open(victim).map(drop));
    tell("folder", fs::create_dir(name("dir")));
    tell("link", std::os::unix::fs::symlink("x", name("link")));
    tell("hard link", fs::hard_link(victim, name("hard")));
    tell("rename", fs::rename(name("old"), name("renamed")));
    tell("remove", fs::remove_file(name("doomed")));
    tell("read", fs::read(victim).map(drop));
    tell("list", fs::read_dir(folder).map(drop));
    tell("shadow", fs::read("/etc/shadow").map(drop));
    tell("chmod", fs::set_permissions(victim, fs::Permissions::from_mode(0o600)));
    tell("chown", std::os::unix::fs::chown(victim, Some(0), Some(0)));
    tell("lchown", std::os::unix::fs::lchown(victim, Some(0), Some(0)));
    tell("setxattr", xattr::set(victim, "user.x", b"x"));
    tell("utimes", rustix::fs::utimensat(CWD, victim, &times, AtFlags::empty()).map_err(into));
    tell("exec", Command::new("/bin/true").status().map(drop));
    tell("tcp", TcpStream::connect(told("LANEFS_TCP")).map(drop));
    tell("udp", UdpSocket::bind("127.0.0.1:0").map(drop));
    let abstractly = SocketAddr::from_abstract_name(told("LANEFS_ABSTRACT"));
    tell("abstract", abstractly.and_then(|name| UnixStream::connect_addr(&name)).map(drop));
    tell("unix", UnixStream::connect(folder.join("socket")).map(drop));
    let pid = told("LANEFS_PID").parse().ok().and_then(Pid::from_raw);
    let kill = |pid| rustix::process::kill_process(pid, Signal::CONT).map_err(into);
    tell("kill", pid.map_or(Ok(()), kill));
    // What is open for reading shows whether attributes can be changed without a path.
    let image = fs::File::open(told("LANEFS_IMAGE"));
    tell("fchmod", image.and_then(|file| file.set_permissions(file.metadata()?.permissions())));
}

fn into(error: rustix::io::Errno) -> io::Error {
    error.into()
}
