//! One step of a recording.

/// Registers before one instruction: the general ones in the order of the processor's encoding
/// (rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 to r15), then the instruction's address.
pub(crate) type Registers = [u64; 17];

/// The index of the instruction's address in a step.
pub(crate) const IP: usize = 16;
