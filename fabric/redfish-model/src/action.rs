//! An action as a resource offers it: where to send it, and what it accepts.

use crate::extra::Extra;
use crate::object::object;
use crate::schema::{Kind, Property, Type};

/// One entry of a resource's `Actions`. The target is the service's word: it is used as given and never built
/// from the resource's address, for services misspell it.
#[derive(Clone, Default)]
pub struct Action {
    /// Where the resource that describes the parameters is.
    pub action_info: Option<String>,
    /// Where to POST.
    pub target: Option<String>,
    pub title: Option<String>,
    /// Among others the values that are allowed here; see [`Action::allowable_values`].
    pub extra: Extra,
}

impl Action {
    pub const SCHEMA: &'static Type = &ACTION;

    /// An action to be offered at `target`.
    pub fn at(target: impl Into<String>) -> Self {
        Self {
            target: Some(target.into()),
            ..Self::default()
        }
    }

    /// What the service says it takes for a parameter; `None` if it does not say.
    pub fn allowable_values(&self, parameter: &str) -> Option<Vec<String>> {
        self.extra.get(&format!("{parameter}@Redfish.AllowableValues"))
    }

    /// The same, to be offered.
    pub fn with_allowable_values(mut self, parameter: &str, values: &[&str]) -> Self {
        // A list of strings always has a form in JSON.
        let _ = self
            .extra
            .set(&format!("{parameter}@Redfish.AllowableValues"), values);
        self
    }
}

object!(Action { 0 action_info 1 target 2 title });

static ACTION: Type = Type {
    name: "Action",
    odata_type: None,
    open: true,
    empty: || Box::new(Action::default()),
    properties: &[
        Property::read("@Redfish.ActionInfo", Kind::Text),
        Property::read("target", Kind::Text),
        Property::read("title", Kind::Text),
    ],
    actions: &[],
};
