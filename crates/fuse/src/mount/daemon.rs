//! Runs a server in the background, and handles the signals that terminate it.

use rustix::fd::OwnedFd;
use std::io::{self, Read, Write};
use std::process::ExitCode;

/// The link from the background process to its parent, which waits until the start has succeeded or
/// failed.
pub struct Parent {
    report: Option<std::fs::File>,
}

/// Tells the caller of [`background`] in which of the two processes it has returned.
pub enum Half {
    /// The server process. The parent waits for [`Parent::serving`] or [`Parent::failed`].
    Server(Parent),
    /// The process that the user started. It exits with this code; the server's messages have
    /// already been printed.
    Caller(ExitCode),
}

impl Parent {
    /// Returns a link without a parent: the server runs in the foreground.
    pub fn none() -> Parent {
        Parent { report: None }
    }

    /// Returns whether a parent waits.
    pub fn is_waiting(&self) -> bool {
        self.report.is_some()
    }

    /// Reports that the server runs: the parent exits with success.
    pub fn serving(&mut self) {
        if let Some(mut report) = self.report.take() {
            // If the write fails, the parent has exited and needs no report.
            let _ = report.write_all(b"+");
        }
    }

    /// Reports that the start failed: the parent prints `message` and exits with 1.
    pub fn failed(&mut self, message: &str) {
        match self.report.take() {
            Some(mut report) => {
                let _ = report.write_all(message.as_bytes());
            }
            None => complain(message),
        }
    }
}

/// Moves the process to the background: forks, starts a session, and leaves the terminal.
///
/// # Errors
/// The process has more than one thread already (a lock that another thread holds would stay locked
/// for ever in the child), /proc is not mounted, or the host cannot start another process.
pub fn background() -> io::Result<Half> {
    let no_proc = |error| io::Error::other(format!("/proc/self/task: {error} (is /proc mounted?)"));
    let threads = std::fs::read_dir("/proc/self/task").map_err(no_proc)?.count();
    if threads != 1 {
        return Err(io::Error::other("a process with threads cannot go to the background"));
    }
    let (reads, writes) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    // SAFETY: this process has only one thread, so in the child no lock is held by a thread that
    // the child lacks.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(reads);
            rustix::process::setsid()?;
            Ok(Half::Server(Parent { report: Some(writes.into()) }))
        }
        _ => {
            drop(writes);
            Ok(Half::Caller(wait_for_report(reads)))
        }
    }
}

fn wait_for_report(reads: OwnedFd) -> ExitCode {
    let mut report = Vec::new();
    let read = std::fs::File::from(reads).read_to_end(&mut report);
    match report.as_slice() {
        b"+" => return ExitCode::SUCCESS,
        b"" => complain("lanefs mount: the server ended before it was ready"),
        message => complain(&String::from_utf8_lossy(message)),
    }
    if let Err(error) = read {
        complain(&format!("lanefs mount: {error}"));
    }
    ExitCode::FAILURE
}

/// Prints `line` on standard error. A failure to print is ignored, since it is no reason to panic.
fn complain(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Closes the standard streams and leaves the working directory. Call this after the last message
/// to the user.
///
/// # Errors
/// /dev/null or / cannot be opened.
pub fn let_go() -> io::Result<()> {
    let null = std::fs::File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    std::env::set_current_dir("/")
}

/// The signals that terminate a server or another long-running command: SIGTERM, SIGINT and SIGHUP.
pub struct Signals {
    set: libc::sigset_t,
}

impl Signals {
    /// Blocks the signals, so that they do not kill the process. Call this before other threads
    /// start, so that they inherit the mask.
    ///
    /// # Errors
    /// The host refused.
    pub fn block() -> io::Result<Signals> {
        Signals::block_those(&ENDING)
    }

    /// Does the same as [`Signals::block`], but leaves out signals that were already ignored when
    /// the process started, as under nohup(1) or in a background command of a shell. These signals
    /// stay ignored.
    ///
    /// # Errors
    /// The host refused.
    pub fn block_unless_ignored() -> io::Result<Signals> {
        let mut heeded = ENDING.to_vec();
        heeded.retain(|signal| !is_ignored(*signal));
        Signals::block_those(&heeded)
    }

    fn block_those(signals: &[i32]) -> io::Result<Signals> {
        let mut set = std::mem::MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set before sigaddset and pthread_sigmask use it. The
        // signal numbers are valid.
        let (status, set) = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in signals {
                libc::sigaddset(set.as_mut_ptr(), *signal);
            }
            let status = libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            (status, set.assume_init())
        };
        match status {
            0 => Ok(Signals { set }),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Waits for one of the signals and returns its number.
    pub fn wait(&self) -> i32 {
        let mut signal = 0;
        // SAFETY: sigwait reads through the first pointer and writes through the second; both are
        // valid.
        unsafe { libc::sigwait(&self.set, &mut signal) };
        signal
    }
}

const ENDING: [i32; 3] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP];

fn is_ignored(signal: i32) -> bool {
    let mut now = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new action, sigaction only writes the present action to the given address.
    // If the call fails, the sigaction of zeros is a valid value too.
    let now = unsafe {
        libc::sigaction(signal, std::ptr::null(), now.as_mut_ptr());
        now.assume_init()
    };
    now.sa_sigaction == libc::SIG_IGN
}
