//! Device numbers, which device inodes store in the field that maps the blocks of other inodes.

/// Major and minor number of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct DeviceNumber {
    /// Major number, which selects the driver; 12 bits are stored.
    pub major: u32,
    /// Minor number, which selects one of the driver's devices; 20 bits are stored.
    pub minor: u32,
}

impl DeviceNumber {
    /// Decodes either form. The old form has 8 bits of each number in the first word. If the first
    /// word is zero, the second word has the new form, which is, from the lowest bit on: minor bits
    /// 0-7, major bits 0-11, minor bits 8-19.
    pub(super) fn decode(block: &[u8; 60]) -> DeviceNumber {
        let word = |at: usize| {
            u32::from_le_bytes([block[at], block[at + 1], block[at + 2], block[at + 3]])
        };
        match word(0) {
            0 => {
                let new = word(4);
                DeviceNumber {
                    major: (new >> 8) & 0xfff,
                    minor: (new & 0xff) | ((new >> 12) & 0xf_ff00),
                }
            }
            old => DeviceNumber { major: (old >> 8) & 0xff, minor: old & 0xff },
        }
    }

    /// Encodes the numbers in the old form if it can hold them, otherwise in the new form.
    pub(super) fn encode(self, block: &mut [u8; 60]) {
        let (major, minor) = (self.major & 0xfff, self.minor & 0xf_ffff);
        let words = if major < 256 && minor < 256 && (major, minor) != (0, 0) {
            [major << 8 | minor, 0]
        } else {
            [0, (minor & 0xff) | major << 8 | (minor & 0xf_ff00) << 12]
        };
        block.fill(0);
        block[..4].copy_from_slice(&words[0].to_le_bytes());
        block[4..8].copy_from_slice(&words[1].to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive_both_forms() {
        for (major, minor) in [(0, 0), (8, 1), (255, 255), (256, 0), (8, 256), (4095, 0xf_ffff)] {
            let device = DeviceNumber { major, minor };
            let mut block = [7; 60];
            device.encode(&mut block);
            assert_eq!(DeviceNumber::decode(&block), device);
        }
    }

    #[test]
    fn small_numbers_take_the_old_form() {
        let mut block = [0; 60];
        DeviceNumber { major: 8, minor: 1 }.encode(&mut block);
        assert_eq!(block[..8], [1, 8, 0, 0, 0, 0, 0, 0]);
    }
}
