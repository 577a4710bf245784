//! Whether the process was started with a standard output.

use lanefs_lanes::sync::unscheduled::atomic::{AtomicBool, Ordering};

static WAS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Runs before `main`, because Rust opens `/dev/null` then if standard output is closed.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = note;

extern "C" fn note() {
    // SAFETY: the call only looks at the table of open files.
    let flags = unsafe { libc::fcntl(libc::STDOUT_FILENO, libc::F_GETFD) };
    WAS_CLOSED.store(flags < 0, Ordering::Relaxed);
}

/// Returns whether standard output was closed when the process started.
pub fn stdout_was_closed() -> bool {
    WAS_CLOSED.load(Ordering::Relaxed)
}
