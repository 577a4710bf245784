//! Computes, from the registers, the addresses that an instruction reads and writes.

use crate::footprint::Footprint;
use crate::registers::{IP, Registers};
use iced_x86::{
    Decoder as Iced, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic,
    OpAccess, Register, UsedMemory,
};
use std::collections::HashMap;

/// Decoded instructions, kept for later recordings.
#[derive(Default)]
pub(crate) struct Decoder {
    known: HashMap<u64, Known>,
}

/// The properties of an instruction that do not depend on registers.
struct Known {
    operands: Vec<Operand>,
    flow: Flow,
    /// Whether the instruction is repeated rcx times; rcx may be zero.
    repeated: bool,
}

struct Operand {
    memory: UsedMemory,
    bytes: u64,
    read: bool,
    written: bool,
}

/// The control flow after an instruction.
#[derive(Clone, Copy)]
enum Flow {
    On,
    Call,
    System,
}

/// The length of the longest instruction.
const LONGEST: usize = 15;

impl Decoder {
    /// Returns the lines that the steps touched.
    pub(crate) fn footprint(&mut self, steps: &[Registers], fs_base: u64) -> Footprint {
        let mut footprint = Footprint::new();
        let mut calls = Calls::default();
        for registers in steps {
            let ip = registers[IP];
            let known = self.known.entry(ip).or_insert_with(|| know(ip));
            footprint.count_instruction();
            calls.arrive(registers);
            if !(known.repeated && registers[1] == 0) {
                for operand in &known.operands {
                    let address = operand.memory.virtual_address(0, |register, _, _| {
                        value_of(register, registers, fs_base)
                    });
                    if let Some(address) = address {
                        let (read, written) = (operand.read, operand.written);
                        footprint.touch(address, operand.bytes, read, written, ip, &calls.stack);
                    }
                }
            }
            match known.flow {
                Flow::Call => calls.call(registers),
                Flow::System => footprint.count_system_call(),
                Flow::On => {}
            }
        }
        footprint
    }
}

/// The calls that have not returned yet: the addresses of the call instructions.
#[derive(Default)]
struct Calls {
    stack: Vec<u64>,
    /// For each of these calls, the position of its return address on the thread's stack.
    pointers: Vec<u64>,
}

impl Calls {
    /// Removes the calls that have returned or were unwound: the return addresses of these calls
    /// are below the stack pointer.
    fn arrive(&mut self, registers: &Registers) {
        while self.pointers.last().is_some_and(|at| registers[4] > *at) {
            self.pointers.pop();
            self.stack.pop();
        }
    }

    fn call(&mut self, registers: &Registers) {
        // Keeps the address of the call instruction, because the return address may be in the next
        // function.
        self.stack.push(registers[IP]);
        self.pointers.push(registers[4].wrapping_sub(8));
    }
}

fn know(ip: u64) -> Known {
    let instruction = instruction_at(ip);
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(&instruction);
    let operands = info
        .used_memory()
        .iter()
        .filter_map(|memory| {
            let (read, written) = match memory.access() {
                OpAccess::Read | OpAccess::CondRead => (true, false),
                OpAccess::Write | OpAccess::CondWrite => (false, true),
                // A compare-and-exchange takes the line exclusively even if it fails.
                OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
                OpAccess::None | OpAccess::NoMemAccess => return None,
            };
            let bytes = memory.memory_size().size().max(1) as u64;
            Some(Operand { memory: *memory, bytes, read, written })
        })
        .collect();
    let flow = match instruction.flow_control() {
        FlowControl::Call | FlowControl::IndirectCall => match instruction.mnemonic() {
            Mnemonic::Syscall => Flow::System,
            _ => Flow::Call,
        },
        _ => Flow::On,
    };
    let repeated = instruction.has_rep_prefix() || instruction.has_repne_prefix();
    Known { operands, flow, repeated }
}

fn instruction_at(ip: u64) -> Instruction {
    // SAFETY: the processor has just executed this instruction, so the instruction's bytes are
    // mapped and do not change: code is not unmapped while it runs. Only bytes in the page of the
    // instruction's first byte are read, because the next page may be unmapped if the instruction
    // does not reach it.
    let bytes = unsafe { code_at(ip, LONGEST.min(PAGE - (ip as usize % PAGE))) };
    let short = decode(bytes, ip);
    if !short.is_invalid() {
        return short;
    }
    // SAFETY: as above; the instruction extends into the next page.
    decode(unsafe { code_at(ip, LONGEST) }, ip)
}

const PAGE: usize = 4096;

fn decode(bytes: &[u8], ip: u64) -> Instruction {
    Iced::with_ip(64, bytes, ip, DecoderOptions::NONE).decode()
}

/// # Safety
/// `len` bytes at `ip` are mapped and do not change.
unsafe fn code_at(ip: u64, len: usize) -> &'static [u8] {
    // SAFETY: the caller guarantees that these bytes are mapped and do not change.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(ip as usize), len) }
}

/// Returns the value of a register that an address uses. Returns `None` for a vector register. Only
/// instructions for scattered accesses use such a register in an address, and compilers do not
/// generate these instructions by themselves.
fn value_of(register: Register, registers: &Registers, fs_base: u64) -> Option<u64> {
    if register.is_segment_register() {
        return Some(if register == Register::FS { fs_base } else { 0 });
    }
    let full = register.full_register();
    if !full.is_gpr64() {
        return None;
    }
    let value = registers[full.number()];
    Some(if register.is_gpr32() { value & 0xffff_ffff } else { value })
}
