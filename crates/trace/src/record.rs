//! Single-steps a thread with the trap flag and a signal handler.
//!
//! One thread is recorded at a time. The handler only copies registers into memory that was
//! allocated before, since it may interrupt any instruction, even of the allocator.

use crate::access::Decoder;
use crate::footprint::Footprint;
use std::fmt;

/// The error on a machine that cannot be traced: one that does not run Linux on x86-64, or an
/// emulator without a trap flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unsupported;

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tracing needs the trap flag of x86-64 and the signals of Linux")
    }
}

impl std::error::Error for Unsupported {}

/// Returns whether [`record`] works on this machine.
pub fn is_supported() -> bool {
    record(|| std::hint::black_box(1)).is_ok()
}

/// Runs `work` on the calling thread, stops at each instruction, and returns the memory that `work`
/// touched. Takes a few microseconds per instruction. Recordings of several threads wait for each
/// other.
///
/// # Errors
/// [`Unsupported`], in which case `work` was not run.
///
/// # Panics
/// If `work` executes more than about four million instructions, or panics.
pub fn record<R>(work: impl FnOnce() -> R) -> Result<(R, Footprint), Unsupported> {
    Recorder::new()?.record(work)
}

/// Makes several recordings, one after another, with the same buffers.
pub struct Recorder {
    machine: machine::Machine,
    decoder: Decoder,
    fs_base: u64,
}

impl Recorder {
    /// Allocates memory for the steps of one recording.
    ///
    /// # Errors
    /// [`Unsupported`] on a machine that cannot be traced.
    pub fn new() -> Result<Recorder, Unsupported> {
        let mut recorder =
            Recorder { machine: machine::Machine::new()?, decoder: Default::default(), fs_base: 0 };
        // An emulator may ignore the trap flag. If the flag works, even a few instructions yield
        // some steps.
        let ((), probe) = recorder.record(|| std::hint::black_box(()))?;
        if probe.instructions() == 0 { Err(Unsupported) } else { Ok(recorder) }
    }

    /// Works like the function [`record`], with the buffers of this recorder.
    ///
    /// # Errors
    /// The same as for the function [`record`].
    pub fn record<R>(&mut self, work: impl FnOnce() -> R) -> Result<(R, Footprint), Unsupported> {
        let result = self.step(work);
        Ok((result, self.footprint()))
    }

    /// Runs and records `work`. Allocates nothing on the recorded thread.
    pub fn step<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let (result, fs_base) = self.machine.run(work);
        self.fs_base = fs_base;
        result
    }

    /// Computes the footprint of the work that was recorded last. May be called on any thread.
    pub fn footprint(&mut self) -> Footprint {
        self.decoder.footprint(self.machine.steps(), self.fs_base)
    }
}

#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod machine {
    use super::Unsupported;
    use crate::registers::{IP, Registers};
    use lanefs_lanes::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
    use std::arch::asm;
    use std::ptr;
    // These locks have no rank, because `TURN` is held while other locks are taken, and a rank
    // check would appear in the trace.
    use lanefs_lanes::sync::unscheduled::{Mutex, Once, PoisonError};

    /// The limit of steps in one recording; memory is used only for actual steps.
    const STEPS: usize = 4 << 20;

    /// The buffer to which the handler writes. It belongs to the one recording that holds `TURN`.
    static BUFFER: AtomicPtr<Registers> = AtomicPtr::new(ptr::null_mut());
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    static FULL: AtomicBool = AtomicBool::new(false);
    static TURN: Mutex<()> = Mutex::new(());

    /// A buffer for steps.
    pub(super) struct Machine {
        buffer: Vec<Registers>,
        count: usize,
    }

    impl Machine {
        pub(super) fn new() -> Result<Machine, Unsupported> {
            static HANDLER: Once = Once::new();
            HANDLER.call_once(install);
            Ok(Machine { buffer: Vec::with_capacity(STEPS), count: 0 })
        }

        pub(super) fn steps(&self) -> &[Registers] {
            // SAFETY: the handler has written this many steps into the vector's capacity.
            unsafe { std::slice::from_raw_parts(self.buffer.as_ptr(), self.count) }
        }

        pub(super) fn run<R>(&mut self, work: impl FnOnce() -> R) -> (R, u64) {
            let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
            BUFFER.store(self.buffer.as_mut_ptr(), Ordering::Relaxed);
            COUNT.store(0, Ordering::Relaxed);
            FULL.store(false, Ordering::Relaxed);
            let armed = Armed::new();
            let result = work();
            drop(armed);
            self.count = COUNT.load(Ordering::Relaxed);
            BUFFER.store(ptr::null_mut(), Ordering::Relaxed);
            assert!(!FULL.load(Ordering::Relaxed), "more than {STEPS} instructions to record");
            (result, fs_base())
        }
    }

    /// Sets the trap flag. Dropping this value clears the flag, also after a panic.
    struct Armed;

    impl Armed {
        #[inline(always)]
        fn new() -> Armed {
            // SAFETY: sets the trap flag and no other; a handler for its signal is installed. The
            // `asm!` block may use the stack, so the compiler keeps nothing in the red zone below
            // the stack pointer. The processor first stops after the instruction that follows
            // `popfq`, and so misses that instruction: here the `nop`.
            unsafe { asm!("pushfq", "or qword ptr [rsp], 0x100", "popfq", "nop") };
            Armed
        }
    }

    impl Drop for Armed {
        #[inline(always)]
        fn drop(&mut self) {
            // SAFETY: clears the trap flag and no other. As above, the block is declared to use the
            // stack.
            unsafe { asm!("pushfq", "and qword ptr [rsp], -0x101", "popfq") };
        }
    }

    fn install() {
        // SAFETY: all zeros is a valid sigaction; the handler has the signature required by
        // SA_SIGINFO, and calls only async-signal-safe functions. Nothing else in this process uses
        // SIGTRAP except a debugger, which cannot work together with single steps.
        let done = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_trap as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(libc::SIGTRAP, &action, ptr::null_mut())
        };
        assert_eq!(done, 0, "sigaction of a valid signal and action");
    }

    /// Saves the registers as they are before the next instruction.
    extern "C" fn on_trap(_: libc::c_int, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
        use libc::{
            REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RAX, REG_RBP,
            REG_RBX, REG_RCX, REG_RDI, REG_RDX, REG_RIP, REG_RSI, REG_RSP,
        };
        const ORDER: [libc::c_int; 17] = [
            REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI, REG_R8, REG_R9,
            REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP,
        ];
        const { assert!(ORDER.len() == IP + 1) };
        let buffer = BUFFER.load(Ordering::Relaxed);
        if buffer.is_null() {
            return;
        }
        let at = COUNT.load(Ordering::Relaxed);
        if at >= STEPS {
            FULL.store(true, Ordering::Relaxed);
            return;
        }
        // SAFETY: the kernel hands the handler a valid context, which no other code uses while the
        // handler runs.
        let registers = unsafe { &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        let step: Registers = std::array::from_fn(|i| registers[ORDER[i] as usize] as u64);
        // SAFETY: `at` is below the buffer's capacity, and only the thread that holds `TURN` is
        // stepped.
        unsafe { buffer.add(at).write(step) };
        COUNT.store(at + 1, Ordering::Relaxed);
    }

    /// Returns the base address of the calling thread's thread-local data.
    fn fs_base() -> u64 {
        const ARCH_GET_FS: libc::c_int = 0x1003;
        let mut base = 0_u64;
        // SAFETY: the call writes one word, to the given address.
        let done = unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_GET_FS, &raw mut base) };
        assert_eq!(done, 0, "arch_prctl(ARCH_GET_FS) is always possible");
        base
    }
}

#[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
mod machine {
    use super::{Registers, Unsupported};

    pub(super) struct Machine;

    impl Machine {
        pub(super) fn new() -> Result<Machine, Unsupported> {
            Err(Unsupported)
        }
        pub(super) fn steps(&self) -> &[Registers] {
            &[]
        }
        pub(super) fn run<R>(&mut self, work: impl FnOnce() -> R) -> (R, u64) {
            (work(), 0)
        }
    }
}
