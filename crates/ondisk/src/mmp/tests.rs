use super::*;
use crate::checksum::Seed;

fn all() -> Checksums {
    Checksums::All { seed: Seed::from_raw(77) }
}

fn mmp() -> Mmp {
    let (node, device) = (b"node".to_vec(), b"vda".to_vec());
    Mmp { state: Use::Mounted(9), time: 1 << 33, node, device, check_interval: 300 }
}

#[test]
fn the_block_survives_encoding() {
    for state in [Use::Clean, Use::Checked, Use::Mounted(LAST_SEQUENCE)] {
        let mut bytes = [7; 4096];
        let mmp = Mmp { state, ..mmp() };
        mmp.encode_into(&mut bytes, all()).unwrap();
        assert_eq!(Mmp::decode(&bytes, all()).unwrap(), mmp);
        assert_eq!(bytes[114], 7);
    }
    let long = Mmp { node: vec![b'n'; 100], ..mmp() };
    let mut bytes = [0; SIZE];
    long.encode_into(&mut bytes, Checksums::None).unwrap();
    assert_eq!(Mmp::decode(&bytes, Checksums::None).unwrap().node, vec![b'n'; 63]);
}

#[test]
fn every_check_of_the_block_has_its_cause() {
    let mut bytes = [0; SIZE];
    mmp().encode_into(&mut bytes, all()).unwrap();
    assert_eq!(Mmp::decode(&bytes[1..], all()), Err(Cause::Length { len: 1023 }));
    let expected = u32::from_le_bytes(*bytes.last_chunk().unwrap());
    bytes[SIZE - 1] ^= 1;
    let found = expected ^ 1 << 24;
    assert_eq!(Mmp::decode(&bytes, all()), Err(Cause::Checksum { found, expected }));
    assert!(Mmp::decode(&bytes, Checksums::None).is_ok());
    bytes[0] = 0;
    assert_eq!(Mmp::decode(&bytes, all()), Err(Cause::Magic { found: 0x004d_4d00 }));
}
