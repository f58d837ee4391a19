//! Whether a database and a manager's folder belong together. Pure: the stores read both, ask here, and do it.
//!
//! A cluster is one database and all managers that keep their state there. It is named at its first start; the
//! database holds the name, and so does the folder of each of its managers, with the number of the last commit
//! that was seen. So a manager does not act by the journal of somebody else's hardware, nor by an empty
//! database in the place of its own.

use crate::OpenError;
use serde::{Deserialize, Serialize};

/// The marker in which a database holds the name of its cluster.
pub(crate) const CLUSTER: &str = "cluster";
/// The marker that says why a database may be an older state; see [`crate::Store::restored`].
pub(crate) const RESTORED: &str = "restored";
/// How far revisions leap in a restored database: past all that can have been given since it was copied.
pub(crate) const LEAP: u64 = 1 << 32;

/// What a manager's folder holds of its database.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Remembered {
    pub cluster: String,
    /// The number of a commit that was seen there: never more than the last one.
    pub revision: u64,
}

/// What a database says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// `None`: there are no tables yet, or they are from before clusters had names.
    pub cluster: Option<String>,
    /// The number of its last commit; `None` where there are no tables.
    pub revision: Option<u64>,
    /// A manager uses it, or ended without a word: it was checked.
    pub unclean: bool,
}

/// Why the database is an older state than this folder's manager has seen.
pub(crate) fn went_back(remembered: Option<&Remembered>, found: &Found) -> Option<String> {
    let (remembered, revision) = (remembered?, found.revision?);
    (revision < remembered.revision).then(|| {
        format!(
            "its last commit is number {revision}, and this manager has seen number {}",
            remembered.revision
        )
    })
}

/// A name that no other cluster has.
pub(crate) fn new_name() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// The name of the cluster, which the database and the folder are to hold from now on; `None` for a new one.
pub(crate) fn belonging(
    place: &str,
    remembered: Option<&Remembered>,
    found: &Found,
) -> Result<Option<String>, OpenError> {
    let Some(remembered) = remembered else {
        return Ok(found.cluster.clone());
    };
    match &found.cluster {
        // A first start that did not come to its end remembers no commit: it has nothing to lose elsewhere.
        Some(cluster) if *cluster == remembered.cluster || remembered.revision == 0 => {
            Ok(Some(cluster.clone()))
        }
        Some(cluster) => Err(OpenError::OtherCluster {
            place: place.to_owned(),
            found: cluster.clone(),
            expected: remembered.cluster.clone(),
        }),
        None if found.revision.is_none() && remembered.revision > 0 => Err(OpenError::Lost {
            place: place.to_owned(),
            revision: remembered.revision,
        }),
        None => Ok(Some(remembered.cluster.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remembered(cluster: &str, revision: u64) -> Option<Remembered> {
        Some(Remembered {
            cluster: cluster.to_owned(),
            revision,
        })
    }

    fn found(cluster: Option<&str>, revision: Option<u64>) -> Found {
        Found {
            cluster: cluster.map(str::to_owned),
            revision,
            unclean: false,
        }
    }

    fn judged(remembered: Option<Remembered>, found: Found) -> Result<Option<String>, OpenError> {
        belonging("the database", remembered.as_ref(), &found)
    }

    #[test]
    fn a_first_start_names_and_a_newcomer_joins() {
        assert_eq!(judged(None, found(None, None)).unwrap(), None);
        assert_eq!(
            judged(None, found(Some("a"), Some(7))).unwrap().as_deref(),
            Some("a")
        );
        // Interrupted before the database was marked, and while another manager named it.
        for there in [found(None, None), found(Some("a"), Some(7))] {
            let named = judged(remembered("a", 0), there).unwrap();
            assert_eq!(named.as_deref(), Some("a"));
        }
        let named = judged(remembered("b", 0), found(Some("a"), Some(7))).unwrap();
        assert_eq!(named.as_deref(), Some("a"));
        // Tables from before there were names.
        assert_eq!(judged(None, found(None, Some(7))).unwrap(), None);
        let named = judged(remembered("a", 3), found(None, Some(7))).unwrap();
        assert_eq!(named.as_deref(), Some("a"));
    }

    #[test]
    fn a_database_that_went_back_is_noticed() {
        let back = |seen, there| went_back(remembered("a", seen).as_ref(), &found(Some("a"), there));
        assert_eq!(back(7, Some(7)), None);
        assert_eq!(back(7, Some(9)), None);
        assert!(back(7, Some(6)).unwrap().contains("number 7"));
        assert_eq!(back(7, None), None, "there is none");
    }

    #[test]
    fn what_belongs_to_others_or_is_empty_all_at_once_is_refused() {
        let error = judged(remembered("a", 3), found(Some("b"), Some(7))).unwrap_err();
        assert!(matches!(error, OpenError::OtherCluster { .. }), "{error}");
        let error = judged(remembered("a", 3), found(None, None)).unwrap_err();
        assert!(matches!(error, OpenError::Lost { revision: 3, .. }), "{error}");
    }
}
