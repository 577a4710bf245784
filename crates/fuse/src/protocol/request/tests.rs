use super::*;
use crate::protocol::abi::RenameIn;

fn with_body(body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<InHeader>()];
    bytes.extend_from_slice(body);
    bytes
}

#[test]
fn fields_of_a_body_are_decoded_in_order() {
    let mut body = 42u64.to_ne_bytes().to_vec();
    body.extend_from_slice(b"old\0new\0");
    let bytes = with_body(&body);
    let mut request = Request::new(&bytes).unwrap();
    assert_eq!(request.take::<RenameIn>().unwrap().newdir, 42);
    assert_eq!(request.name().unwrap(), b"old");
    assert_eq!(request.name().unwrap(), b"new");
    assert_eq!(request.name().unwrap_err(), Errno::INVAL);
}

#[test]
fn a_request_in_parts_is_decoded_like_one_in_a_piece() {
    let header = Request::new(&with_body(&[])).unwrap().header;
    let operation = 42u64.to_ne_bytes();
    let mut request = Request::of_parts(header, &operation, b"old\0new\0");
    assert_eq!(request.take::<RenameIn>().unwrap().newdir, 42);
    assert_eq!(request.name().unwrap(), b"old");
    assert_eq!(request.name().unwrap(), b"new");
    // The first request lacks the record of its operation; the record of the second is too
    // short.
    assert_eq!(Request::of_parts(header, &[], b"name\0").name().unwrap(), b"name");
    let mut cut = Request::of_parts(header, &operation[..4], b"name\0");
    assert!(cut.take::<RenameIn>().is_err());
}

#[test]
fn a_body_that_is_too_short_is_an_error() {
    let bytes = with_body(b"abc");
    let mut request = Request::new(&bytes).unwrap();
    assert!(request.take::<RenameIn>().is_err());
    assert!(request.name().is_err());
    assert!(request.data(4).is_err());
    assert_eq!(request.data(3).unwrap(), b"abc");
    assert!(Request::new(&bytes[..39]).is_none());
}
