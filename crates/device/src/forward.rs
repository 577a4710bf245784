//! Forwards methods of a wrapper to the device that it wraps.

/// Implements the named methods of [`crate::Device`] for a wrapper that changes only some
/// operations. Each method calls the same method of the device in a field of `self`.
///
/// A method that is neither named nor written by hand has the default of the trait, which calls
/// other methods of the wrapper: the default of `write_zeros`, for example, calls `write`.
///
/// ```
/// use lanefs_device::{Device, DeviceError, RamDevice, forward};
///
/// /// A device whose flushes do nothing.
/// struct Hasty {
///     inner: RamDevice,
/// }
///
/// impl Device for Hasty {
///     forward!(inner: len, is_read_only, read, write, discard);
///     fn flush(&self) -> Result<(), DeviceError> {
///         Ok(())
///     }
/// }
/// ```
#[macro_export]
macro_rules! forward {
    ($inner:tt: $($method:ident),+) => {
        $($crate::forward!(@ $method $inner);)+
    };
    (@ len $inner:tt) => {
        fn len(&self) -> u64 {
            $crate::Device::len(&self.$inner)
        }
    };
    (@ alignment $inner:tt) => {
        fn alignment(&self) -> u32 {
            $crate::Device::alignment(&self.$inner)
        }
    };
    (@ row_len $inner:tt) => {
        fn row_len(&self) -> u64 {
            $crate::Device::row_len(&self.$inner)
        }
    };
    (@ is_read_only $inner:tt) => {
        fn is_read_only(&self) -> bool {
            $crate::Device::is_read_only(&self.$inner)
        }
    };
    (@ read $inner:tt) => {
        fn read(
            &self,
            offset: u64,
            buf: &mut [u8],
            kind: $crate::ReadKind,
        ) -> Result<(), $crate::DeviceError> {
            $crate::Device::read(&self.$inner, offset, buf, kind)
        }
    };
    (@ write $inner:tt) => {
        fn write(
            &self,
            offset: u64,
            bufs: &[&[u8]],
            kind: $crate::WriteKind,
        ) -> Result<(), $crate::DeviceError> {
            $crate::Device::write(&self.$inner, offset, bufs, kind)
        }
    };
    (@ flush $inner:tt) => {
        fn flush(&self) -> Result<(), $crate::DeviceError> {
            $crate::Device::flush(&self.$inner)
        }
    };
    (@ write_zeros $inner:tt) => {
        fn write_zeros(&self, offset: u64, len: u64) -> Result<(), $crate::DeviceError> {
            $crate::Device::write_zeros(&self.$inner, offset, len)
        }
    };
    (@ discard $inner:tt) => {
        fn discard(&self, offset: u64, len: u64) -> Result<(), $crate::DeviceError> {
            $crate::Device::discard(&self.$inner, offset, len)
        }
    };
}
