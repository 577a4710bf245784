use super::*;

#[test]
fn every_width_gives_what_byte_by_byte_gives() {
    let seed = 23;
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    type Run = fn(Old, &mut [u8], &[&[u8]]);
    let mut runs: Vec<Run> = vec![run_portable, run];
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2.
        runs.push(|old, into, sources| unsafe { run_avx2(old, into, sources) });
    }
    for len in [0, 1, 8, 63, 64, 65, 500, 4096, 4097] {
        for count in 1..=AT_ONCE {
            let sources: Vec<Vec<u8>> =
                (0..count).map(|_| (0..len).map(|_| rng.u8(..)).collect()).collect();
            let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
            let old: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
            let slow = |start: u8, at: usize| sources.iter().fold(start, |s, b| s ^ b[at]);
            for run in &runs {
                let mut got = old.clone();
                run(Old::Replaced, &mut got, &sources);
                assert!((0..len).all(|at| got[at] == slow(0, at)), "{count} of {len}");
                let mut got = old.clone();
                run(Old::Kept, &mut got, &sources);
                assert!((0..len).all(|at| got[at] == slow(old[at], at)), "{count} of {len}");
            }
        }
    }
}

#[test]
fn any_number_of_sources_of_any_length() {
    let seed = 24;
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    for count in [0, 1, 2, 5, 6, 10, 11, 31] {
        let len = rng.usize(..20_000);
        let sources: Vec<Vec<u8>> =
            (0..count).map(|_| (0..len).map(|_| rng.u8(..)).collect()).collect();
        let sources: Vec<&[u8]> = sources.iter().map(Vec::as_slice).collect();
        let old: Vec<u8> = (0..len).map(|_| rng.u8(..)).collect();
        let slow = |start: u8, at: usize| sources.iter().fold(start, |s, b| s ^ b[at]);
        let mut got = old.clone();
        xor(&mut got, &sources);
        assert!((0..len).all(|at| got[at] == slow(0, at)), "{count} of {len}");
        let mut got = old.clone();
        xor_with(&mut got, &sources);
        assert!((0..len).all(|at| got[at] == slow(old[at], at)), "{count} of {len}");
    }
}

#[test]
#[should_panic(expected = "as long as the result")]
fn a_source_of_another_length_is_refused() {
    xor(&mut [0; 8], &[&[0; 7]]);
}
