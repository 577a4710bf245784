//! Identifies threads by the host's ids, and interrupts threads that wait in read(2) or at a ring.

use lanefs_lanes::sync::unscheduled::Once;

/// A signal that is ignored by default, so an extra one is harmless.
const SIGNAL: i32 = libc::SIGURG;

/// Returns the host's id of this thread.
pub fn this_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// Interrupts the system calls in which `threads` of this process wait: they return EINTR.
pub fn interrupt(threads: impl Iterator<Item = u32>) {
    static HANDLED: Once = Once::new();
    HANDLED.call_once(handle);
    let process = std::process::id();
    for thread in threads {
        // SAFETY: tgkill has no pointer arguments. It fails for a thread of another process. If a
        // thread of this process has reused the id, that thread is only interrupted needlessly.
        unsafe { libc::syscall(libc::SYS_tgkill, process, thread, SIGNAL) };
    }
}

/// Installs a signal handler that does nothing, because without a handler the kernel would discard
/// the signal.
fn handle() {
    extern "C" fn nothing(_: i32) {}
    let handler: extern "C" fn(i32) = nothing;
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a sigaction of zeros has an empty mask and no flags, so calls are not restarted.
    // Without SA_SIGINFO a handler has this signature. The handler does nothing, so it is safe in
    // any thread.
    unsafe {
        (*action.as_mut_ptr()).sa_sigaction = handler as libc::sighandler_t;
        libc::sigaction(SIGNAL, action.as_ptr(), std::ptr::null_mut());
    }
}
