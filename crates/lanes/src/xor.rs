//! Computes the exclusive or of many buffers, with the widest vectors of the processor.
//!
//! The speed of parity is limited by memory bandwidth, not by arithmetic. So each source is read
//! once and the result is written once; the result is not read back from memory. One pass combines
//! at most [`AT_ONCE`] sources. If there are more sources, all passes are made for one block of the
//! result before the next block begins. The block stays in the first-level cache meanwhile.

/// The largest number of sources in one pass. Hardware prefetchers cannot follow more streams than
/// these sources and the result.
const AT_ONCE: usize = 5;

/// The number of bytes of the result that are computed from one group of sources before the next
/// group is read.
const BLOCK: usize = 4096;

/// The number of bytes that one step computes. They fill one AVX-512 register or two AVX2
/// registers.
const STEP: usize = 64;

/// Sets `into` to the XOR of `sources`, or to zeros if there are none.
///
/// # Panics
/// If a source is not as long as `into`.
pub fn xor(into: &mut [u8], sources: &[&[u8]]) {
    check(into, sources);
    let Some((first, rest)) = sources.split_at_checked(sources.len().min(AT_ONCE)) else { return };
    if first.is_empty() {
        into.fill(0);
        return;
    }
    if rest.is_empty() {
        return run(Old::Replaced, into, first);
    }
    for from in (0..into.len()).step_by(BLOCK) {
        let to = into.len().min(from + BLOCK);
        let block = &mut into[from..to];
        run(Old::Replaced, block, &cut(first, from, to)[..first.len()]);
        for some in rest.chunks(AT_ONCE) {
            run(Old::Kept, block, &cut(some, from, to)[..some.len()]);
        }
    }
}

/// Sets `into` to the XOR of its previous bytes and of `sources`.
///
/// # Panics
/// If a source is not as long as `into`.
pub fn xor_with(into: &mut [u8], sources: &[&[u8]]) {
    check(into, sources);
    for from in (0..into.len()).step_by(BLOCK) {
        let to = into.len().min(from + BLOCK);
        for some in sources.chunks(AT_ONCE) {
            run(Old::Kept, &mut into[from..to], &cut(some, from, to)[..some.len()]);
        }
    }
}

fn check(into: &[u8], sources: &[&[u8]]) {
    assert!(sources.iter().all(|s| s.len() == into.len()), "sources as long as the result");
}

fn cut<'a>(sources: &[&'a [u8]], from: usize, to: usize) -> [&'a [u8]; AT_ONCE] {
    std::array::from_fn(|i| sources.get(i).map_or(&[][..], |s| &s[from..to]))
}

/// Whether the previous bytes of the result are replaced, or combined with the sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Old {
    Replaced,
    Kept,
}

fn run(old: Old, into: &mut [u8], sources: &[&[u8]]) {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the processor has AVX-512 F, the only requirement of the function.
            return unsafe { run_avx512(old, into, sources) };
        }
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, the only requirement of the function.
            return unsafe { run_avx2(old, into, sources) };
        }
    }
    run_portable(old, into, sources);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn run_avx512(old: Old, into: &mut [u8], sources: &[&[u8]]) {
    run_portable(old, into, sources);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn run_avx2(old: Old, into: &mut [u8], sources: &[&[u8]]) {
    run_portable(old, into, sources);
}

/// Runs a pass in portable code. The functions above inline it, so that it is compiled with the
/// vector instructions that they enable.
#[inline(always)]
fn run_portable(old: Old, into: &mut [u8], sources: &[&[u8]]) {
    match (old, sources) {
        (Old::Replaced, &[a]) => into.copy_from_slice(a),
        (Old::Replaced, &[a, b]) => pass(into, [a, b], |_| [0; STEP]),
        (Old::Replaced, &[a, b, c]) => pass(into, [a, b, c], |_| [0; STEP]),
        (Old::Replaced, &[a, b, c, d]) => pass(into, [a, b, c, d], |_| [0; STEP]),
        (Old::Replaced, &[a, b, c, d, e]) => pass(into, [a, b, c, d, e], |_| [0; STEP]),
        (Old::Kept, &[a]) => pass(into, [a], |old| *old),
        (Old::Kept, &[a, b]) => pass(into, [a, b], |old| *old),
        (Old::Kept, &[a, b, c]) => pass(into, [a, b, c], |old| *old),
        (Old::Kept, &[a, b, c, d]) => pass(into, [a, b, c, d], |old| *old),
        (Old::Kept, &[a, b, c, d, e]) => pass(into, [a, b, c, d, e], |old| *old),
        _ => unreachable!("callers give one to {AT_ONCE} sources"),
    }
}

#[inline(always)]
fn pass<const N: usize>(
    into: &mut [u8],
    sources: [&[u8]; N],
    start: impl Fn(&[u8; STEP]) -> [u8; STEP],
) {
    let (steps, tail) = into.as_chunks_mut::<STEP>();
    let parts = sources.map(|s| s.as_chunks::<STEP>());
    for (at, step) in steps.iter_mut().enumerate() {
        let mut sum = words(&start(step));
        for (source, _) in &parts {
            let more = words(&source[at]);
            for (word, add) in sum.iter_mut().zip(more) {
                *word ^= add;
            }
        }
        for (bytes, word) in step.as_chunks_mut::<8>().0.iter_mut().zip(sum) {
            *bytes = word.to_ne_bytes();
        }
    }
    let mut old = [0; STEP];
    old[..tail.len()].copy_from_slice(tail);
    let start = start(&old);
    for (at, byte) in tail.iter_mut().enumerate() {
        *byte = parts.iter().fold(start[at], |sum, (_, rest)| sum ^ rest[at]);
    }
}

#[inline(always)]
fn words(bytes: &[u8; STEP]) -> [u64; STEP / 8] {
    let mut words = [0; STEP / 8];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
        *word = u64::from_ne_bytes(*bytes);
    }
    words
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
