//! Names of things in URIs. An id may hold characters that a URI must escape; a name in a URI holds none, and stays
//! what it is for as long as its id does.

use std::collections::HashMap;

/// One list of things, each with a name of its own. The order is that of the ids it was made of.
#[derive(Debug, Default)]
pub(crate) struct Names {
    names: Vec<String>,
    by_name: HashMap<String, usize>,
    by_id: HashMap<String, usize>,
}

impl Names {
    pub fn of<'a>(ids: impl IntoIterator<Item = &'a str>) -> Self {
        let mut made = Self::default();
        for (index, id) in ids.into_iter().enumerate() {
            let mut name = plain(id);
            // Two ids that differ in what can't be said only.
            let mut again = 2;
            while made.by_name.contains_key(&name) {
                name = format!("{}-{again}", plain(id));
                again += 1;
            }
            made.by_name.insert(name.clone(), index);
            made.by_id.insert(id.to_owned(), index);
            made.names.push(name);
        }
        made
    }

    /// The place in the list of what has this name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.by_name.get(name).copied()
    }

    /// The place in the list of what has this id.
    pub fn index(&self, id: &str) -> Option<usize> {
        self.by_id.get(id).copied()
    }

    /// The name of what has this id.
    pub fn name(&self, id: &str) -> Option<&str> {
        self.at(self.index(id)?)
    }

    pub fn at(&self, index: usize) -> Option<&str> {
        self.names.get(index).map(String::as_str)
    }

    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }
}

/// Only what a URI holds as it is (RFC 3986, unreserved).
pub(crate) fn plain(id: &str) -> String {
    let unreserved = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '~');
    let plain: String = id.chars().map(|c| if unreserved(c) { c } else { '-' }).collect();
    // A path of dots is another path.
    match plain.chars().all(|c| c == '.') {
        true => plain.replace('.', "-"),
        false => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thing_has_a_name_that_needs_no_escaping() {
        let names = Names::of(["host-1:PCIe", "host-1/PCIe", "..", "gpu-1", "größe"]);
        let all: Vec<&str> = names.iter().collect();
        assert_eq!(all, ["host-1-PCIe", "host-1-PCIe-2", "--", "gpu-1", "gr--e"]);
        assert_eq!(names.name("host-1/PCIe"), Some("host-1-PCIe-2"));
        assert_eq!(names.find("host-1-PCIe-2"), Some(1));
        assert_eq!(names.find("host-1:PCIe"), None);
    }
}
