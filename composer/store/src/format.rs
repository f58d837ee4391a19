//! The format of what is kept: documents, journal lines and events, whatever the tables are.
//!
//! A store knows only JSON, and the version of the tables says nothing of what is in it. So there is a number of its own
//! for that: raised by each change after which a Poolwright from before could not read a document, or would lose a part
//! of it when it writes it again. A store whose number is higher than this one's is refused and left as it is.

use crate::OpenError;

/// What this Poolwright writes. `tests/versions/documents-NNNN.json` has documents of each.
///
/// Format 2: rows have checksums. An earlier program would write a document and leave its old checksum.
pub const DOCUMENT_FORMAT: u32 = 2;

/// The marker that holds it. It is absent where a store was written last before there was one: that is format 1.
pub(crate) const FORMAT: &str = "document-format";

/// An error where a store's documents are not for this Poolwright to write to.
pub(crate) fn judge(place: &str, marked: Option<&str>) -> Result<(), OpenError> {
    let Some(text) = marked else { return Ok(()) };
    match text.parse() {
        Ok(found) if found > DOCUMENT_FORMAT => Err(OpenError::Newer {
            place: place.to_owned(),
            what: "documents",
            found,
            known: DOCUMENT_FORMAT,
        }),
        Ok(_) => Ok(()),
        Err(_) => Err(OpenError::Foreign {
            place: place.to_owned(),
            reason: format!("the format of its documents reads {text:?}"),
        }),
    }
}

/// Whether somebody newer has taken the store over while this Poolwright ran.
pub(crate) fn is_newer(marked: Option<&str>) -> bool {
    judge("", marked).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_or_the_same_is_taken_and_what_is_newer_is_named() {
        let next = (DOCUMENT_FORMAT + 1).to_string();
        for taken in [None, Some("1"), Some(DOCUMENT_FORMAT.to_string().as_str())] {
            judge("pool.db", taken).unwrap();
        }
        let error = judge("pool.db", Some(&next)).unwrap_err().to_string();
        for part in ["pool.db", "newer Poolwright", &format!("documents {next}")] {
            assert!(error.contains(part), "{error}");
        }
        let error = judge("pool.db", Some("two")).unwrap_err();
        assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
        assert!(is_newer(Some(&next)) && !is_newer(None));
    }
}
