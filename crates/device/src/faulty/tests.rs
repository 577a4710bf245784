use super::*;
use crate::ram::RamDevice;

#[test]
fn the_nth_write_fails_once_or_from_then_on() {
    for (duration, want) in
        [(Duration::Once, [true, false, true]), (Duration::FromThenOn, [true, false, false])]
    {
        let ram = Arc::new(RamDevice::create(4096).unwrap());
        let fault = Fault { operation: Operation::Write, nth: 2, duration };
        let device = FaultyDevice::new(ram, Some(fault));
        device.flush().unwrap();
        let got = [(); 3].map(|()| device.write_at(0, &[1]).is_ok());
        assert_eq!(got, want);
        assert_eq!(device.count(Operation::Write), 3);
        assert_eq!(device.count(Operation::Flush), 1);
    }
}
