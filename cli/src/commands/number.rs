//! Numbers as arguments, refused with the range that they must be in.

/// Reads a whole number of this range, whatever is given instead.
pub fn within<T: TryFrom<u64>>(
    least: u64,
    most: u64,
) -> impl Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static {
    move |text| {
        let number = text.parse::<u64>().ok();
        let number = number.filter(|number| (least..=most).contains(number));
        let number = number.and_then(|number| T::try_from(number).ok());
        number.ok_or_else(|| format!("allowed: a whole number from {least} to {most}"))
    }
}

/// Tokens of a request or of a sequence.
pub const MOST_TOKENS: u64 = 1 << 30;
/// Requests at once, sequences of a micro-batch, micro-batches.
pub const MOST_AT_ONCE: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_range_is_told_the_range() {
        let read = within::<u32>(1, 1024);
        assert_eq!(read("8"), Ok(8));
        for text in ["0", "1025", "-5", "1000000000000000000000000000000", "eight", ""] {
            assert_eq!(
                read(text),
                Err("allowed: a whole number from 1 to 1024".to_owned()),
                "{text}"
            );
        }
    }
}
