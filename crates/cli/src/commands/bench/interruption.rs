//! What ends a run before its time: a signal.

use crate::cli::complain;
use lanefs_bench::Stop;
use lanefs_fuse::daemon::Signals;
use lanefs_lanes::sync::Arc;
use lanefs_lanes::sync::atomic::{AtomicU32, Ordering};
use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// What comes this soon after the first signal is the same wish: timeout(1) and make pass on to us
/// what the whole process group was sent.
const TOGETHER: Duration = Duration::from_secs(1);

/// Watches for signals that ask for the end. The first one lets the run take down what it made, a
/// later one does not wait for that.
pub struct Interruption {
    stop: Arc<Stop>,
    /// The number of the signal that came, or 0.
    signal: Arc<AtomicU32>,
}

impl Interruption {
    /// From here on. Threads and programs that are started later inherit that the signals are not for
    /// them, so this comes first.
    ///
    /// # Errors
    /// The host says no.
    pub fn watch() -> io::Result<Interruption> {
        let signals = Signals::block_unless_ignored()?;
        let watched = Interruption { stop: Arc::default(), signal: Arc::new(AtomicU32::new(0)) };
        let (stop, signal) = (watched.stop.clone(), watched.signal.clone());
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            let first = signals.wait();
            signal.store(first.unsigned_abs(), Ordering::Relaxed);
            stop.ask();
            if io::stderr().is_terminal() {
                // Not behind what tells of progress, nor behind a ^C.
                eprintln!();
            }
            complain(
                "lanefs bench: interrupted: taking down what was made (once more: end at once)",
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

    /// What the run looks at.
    pub fn stop(&self) -> Arc<Stop> {
        self.stop.clone()
    }

    /// True once a signal came.
    pub fn came(&self) -> bool {
        self.stop.is_asked()
    }

    /// How a program ends that a signal ended, as shells tell it; `None` if none came.
    pub fn exit(&self) -> Option<ExitCode> {
        match self.signal.load(Ordering::Relaxed) {
            0 => None,
            signal => Some(ExitCode::from(u8::try_from(128 + signal).unwrap_or(u8::MAX))),
        }
    }
}
