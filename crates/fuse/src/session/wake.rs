//! Threads as the host has them: interrupting those that wait in read(2), and whether one slept.

use lanefs_lanes::sync::unscheduled::Once;

/// Ignored by every process that does not ask for it, so a signal too many does no harm.
const SIGNAL: i32 = libc::SIGURG;

/// The number of this thread on the host.
pub fn this_thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// How often this thread has waited for something, since it began.
pub fn times_slept() -> i64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the kernel fills the record, which is valid as zeros too.
    unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init().ru_nvcsw
    }
}

/// Ends the system calls in which `threads` of this process wait, with EINTR.
pub fn interrupt(threads: impl Iterator<Item = u32>) {
    static HANDLED: Once = Once::new();
    HANDLED.call_once(handle);
    let process = std::process::id();
    for thread in threads {
        // SAFETY: tgkill has no pointers. A number that is no thread of this process is an error, and a
        // thread with another task is interrupted for nothing.
        unsafe { libc::syscall(libc::SYS_tgkill, process, thread, SIGNAL) };
    }
}

/// Gives the signal a handler that does nothing: without one the kernel would drop the signal.
fn handle() {
    extern "C" fn nothing(_: i32) {}
    let handler: extern "C" fn(i32) = nothing;
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a sigaction of zeros has an empty mask and no flags, so that calls are not restarted; the
    // handler has the signature that a handler without SA_SIGINFO has, and is safe in any thread.
    unsafe {
        (*action.as_mut_ptr()).sa_sigaction = handler as libc::sighandler_t;
        libc::sigaction(SIGNAL, action.as_ptr(), std::ptr::null_mut());
    }
}
