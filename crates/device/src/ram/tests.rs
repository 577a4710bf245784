use super::*;

#[test]
fn ragged_reads_give_back_ragged_writes() {
    let seed = 7;
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let len = 10_000usize;
    let ram = RamDevice::create(len as u64).unwrap();
    let mut model = vec![0u8; len];
    for _ in 0..2000 {
        let from = rng.usize(..len);
        let to = rng.usize(from..=len);
        match rng.u8(..4) {
            0 => {
                model[from..to].fill(0);
                ram.write_zeros(from as u64, (to - from) as u64).unwrap();
            }
            1 | 2 => {
                let to = to.min(from + 40);
                rng.fill(&mut model[from..to]);
                ram.write_at(from as u64, &model[from..to]).unwrap();
            }
            _ => {
                let mut got = vec![0; to - from];
                ram.read_at(from as u64, &mut got).unwrap();
                assert_eq!(got, &model[from..to]);
            }
        }
    }
}

#[test]
fn a_huge_device_takes_memory_only_where_it_is_written() {
    let ram = RamDevice::create(16 << 40).unwrap();
    ram.write_at((16 << 40) - 3, b"end").unwrap();
    let mut got = [0; 3];
    ram.read_at((16 << 40) - 3, &mut got).unwrap();
    assert_eq!(&got, b"end");
    assert!(ram.write_at((16 << 40) - 2, b"end").is_err());
    assert!(ram.read_at(u64::MAX, &mut got).is_err());
}

#[test]
fn threads_write_different_bytes_of_one_word() {
    let ram = RamDevice::create(64).unwrap();
    std::thread::scope(|scope| {
        for i in 0..8u8 {
            let ram = &ram;
            scope.spawn(move || (0..1000).for_each(|_| ram.write_at(i.into(), &[i + 1]).unwrap()));
        }
    });
    let mut got = [0; 8];
    ram.read_at(0, &mut got).unwrap();
    assert_eq!(got, [1, 2, 3, 4, 5, 6, 7, 8]);
}
