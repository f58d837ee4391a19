//! DER, as far as it must be understood here: one element after the other.

pub(crate) struct Element<'d> {
    pub tag: u8,
    pub content: &'d [u8],
    pub rest: &'d [u8],
}

/// The first element of some DER.
pub(crate) fn element(der: &[u8]) -> Option<Element<'_>> {
    let (&[tag, first], rest) = der.split_first_chunk::<2>()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first - 0x80))?;
            let length = bytes
                .iter()
                .fold(0, |length, byte| length << 8 | usize::from(*byte));
            (length, rest)
        }
        _ => return None,
    };
    let (content, rest) = rest.split_at_checked(length)?;
    Some(Element { tag, content, rest })
}
