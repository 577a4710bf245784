use super::*;
use crate::ram::RamDevice;

#[test]
fn the_device_below_is_never_written_and_forks_are_independent() {
    let seed = 11;
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let len = 50_000usize;
    let ram = Arc::new(RamDevice::create(len as u64).unwrap());
    let mut base = vec![0; len];
    rng.fill(&mut base);
    ram.write_at(0, &base).unwrap();
    let overlay = OverlayDevice::new(ram.clone(), u64::MAX);
    let mut model = base.clone();
    let mut forked = None;
    for round in 0..300 {
        let from = rng.usize(..len);
        let to = rng.usize(from..=len.min(from + 9000));
        rng.fill(&mut model[from..to]);
        overlay.write_at(from as u64, &model[from..to]).unwrap();
        if round == 100 {
            forked = Some((overlay.fork(), model.clone()));
        }
    }
    let mut got = vec![0; len];
    overlay.read_at(0, &mut got).unwrap();
    assert_eq!(got, model);
    let (fork, then) = forked.unwrap();
    fork.read_at(0, &mut got).unwrap();
    assert_eq!(got, then);
    ram.read_at(0, &mut got).unwrap();
    assert_eq!(got, base);
}

#[test]
fn changes_beyond_the_cap_are_an_error() {
    let ram = Arc::new(RamDevice::create(64 << 10).unwrap());
    let overlay = OverlayDevice::new(ram, 2 * GRANULE);
    overlay.write_at(0, &[1; 8192]).unwrap();
    overlay.write_at(100, &[2; 100]).unwrap();
    let full = overlay.write_at(8192, &[3]).unwrap_err();
    assert_eq!(full.source.kind(), io::ErrorKind::StorageFull);
    assert_eq!(overlay.held(), 2 * GRANULE);
}
