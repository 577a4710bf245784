use super::*;
use crate::protocol::abi::{GetxattrIn, LseekIn};
use zerocopy::FromZeros;

/// Returns an entry that is filled as the kernel fills it; `len` is the length in the request's
/// header.
fn arrived(operation: &[u8], payload: &[u8], len: usize) -> Entry {
    let mut entry = Entry::new(3).unwrap();
    let mut header = InHeader::new_zeroed();
    (header.len, header.unique, header.opcode) = (len as u32, 7, 22);
    let mut head = UringReqHeader::new_zeroed();
    head.in_out[..40].copy_from_slice(header.as_bytes());
    head.op_in[..operation.len()].copy_from_slice(operation);
    (head.commit_id, head.payload_sz) = (99, payload.len() as u32);
    entry.header.bytes_mut()[..288].copy_from_slice(head.as_bytes());
    entry.reply.clear();
    entry.reply.put_bytes(payload);
    entry
}

fn reply(entry: &Entry) -> (i32, u64, Vec<u8>) {
    let head = entry.head();
    let error = i32::from_ne_bytes(head.in_out[4..8].try_into().unwrap());
    let unique = u64::from_ne_bytes(head.in_out[8..16].try_into().unwrap());
    let payload = entry.reply.payload_bytes(head.payload_sz as usize).unwrap();
    (error, unique, payload.to_vec())
}

#[test]
fn a_request_with_a_payload_is_answered_from_another_place() {
    let mut beside = Outbox::new();
    let mut entry = arrived(&[8, 0, 0, 0, 0, 0, 0, 0], b"user.a\0", 40 + 8 + 7);
    assert_eq!((entry.commit_id(), entry.request_header().opcode), (99, 22));
    let (mut request, outbox) = entry.request(&mut beside).unwrap();
    assert_eq!(request.take::<GetxattrIn>().unwrap().size, 8);
    outbox.put_bytes(b"value of ");
    outbox.put_bytes(request.name().unwrap());
    entry.finish(&beside, None);
    assert_eq!(reply(&entry), (0, 7, b"value of user.a".to_vec()));
}

#[test]
fn a_request_without_a_payload_is_answered_in_place_on_a_page_boundary() {
    let mut beside = Outbox::new();
    let mut entry = arrived(&[1; 24], b"", 40 + 24);
    let (mut request, outbox) = entry.request(&mut beside).unwrap();
    assert_eq!(request.take::<LseekIn>().unwrap().whence, 0x0101_0101);
    let data = outbox.data(100);
    assert_eq!(data.as_ptr() as usize % 4096, 0);
    data[..3].copy_from_slice(b"abc");
    outbox.set_len(3);
    entry.finish(&beside, None);
    assert_eq!(reply(&entry), (0, 7, b"abc".to_vec()));
    entry.finish(&beside, Some(Errno::IO));
    assert_eq!(reply(&entry), (-5, 7, Vec::new()));
}

#[test]
fn lengths_that_contradict_each_other_are_no_request() {
    let mut beside = Outbox::new();
    for len in [0, 39, 40 + 6, 40 + 7 + 129, u32::MAX as usize] {
        assert!(arrived(&[], b"user.a\0", len).request(&mut beside).is_none(), "{len}");
    }
    let mut entry = arrived(&[], b"", 40);
    let mut head = entry.head();
    head.payload_sz = u32::MAX;
    entry.header.bytes_mut()[..288].copy_from_slice(head.as_bytes());
    assert!(entry.request(&mut beside).is_none());
}
