//! Signals that end a run early.

use crate::cli::complain;
use lanefs_bench::Stop;
use lanefs_fuse::daemon::Signals;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicU32, Ordering};
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// A second signal within this time counts as the same signal, because timeout(1) and make(1) send
/// each signal twice: to the process, and to its whole process group.
const TOGETHER: Duration = Duration::from_secs(1);

/// Watches for SIGINT, SIGTERM and SIGHUP. After the first signal, the run removes its files. A
/// later signal terminates the process at once.
pub struct Interruption {
    stop: Arc<Stop>,
    /// The number of the received signal, or 0.
    signal: Arc<AtomicU32>,
}

impl Interruption {
    /// Starts watching. Must be called before other threads and programs start, because they
    /// inherit the blocked signals.
    ///
    /// # Errors
    /// If the host refuses to set the signal mask or to create the thread.
    pub fn watch() -> io::Result<Interruption> {
        let signals = Signals::block_unless_ignored()?;
        let watched = Interruption { stop: Arc::default(), signal: Arc::new(AtomicU32::new(0)) };
        let (stop, signal) = (watched.stop.clone(), watched.signal.clone());
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            let first = signals.wait();
            signal.store(first.unsigned_abs(), Ordering::Relaxed);
            stop.ask();
            if io::stderr().is_terminal() {
                // Start on a new line, after the progress line or the terminal's "^C".
                eprintln!();
            }
            complain(
                "lanefs bench: interrupted: removing temporary files and mounts (a second signal ends at once)",
            );
            let since = Instant::now();
            loop {
                let again = signals.wait();
                if since.elapsed() >= TOGETHER {
                    std::process::exit(128 + again);
                }
            }
        })?;
        Ok(watched)
    }

    /// Returns the flag that the run checks.
    pub fn stop(&self) -> Arc<Stop> {
        self.stop.clone()
    }

    /// Returns whether a signal was received.
    pub fn came(&self) -> bool {
        self.stop.is_asked()
    }

    /// Returns the exit code after a signal, 128 plus its number as in shells; `None` without a
    /// signal.
    pub fn exit(&self) -> Option<ExitCode> {
        match self.signal.load(Ordering::Relaxed) {
            0 => None,
            signal => Some(ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX))),
        }
    }
}
