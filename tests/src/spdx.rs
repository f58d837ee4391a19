//! Decides whether a crate's licence expression is allowed by a list.
//!
//! Follows SPDX 2.3, annex D: `OR` gives the choice, `AND` asks for both, `WITH` names an exception that
//! is part of the licence, parentheses group, and `AND` binds tighter than `OR`. Cargo's old form
//! `MIT/Apache-2.0` means `OR`. An allowed entry is a licence id, or `ID WITH EXCEPTION` as one entry.

use std::collections::BTreeSet;

/// Whether the list allows use under `expression`. An error says where it is not an SPDX expression.
pub fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> Result<bool, String> {
    let spaced = expression
        .replace('(', " ( ")
        .replace(')', " ) ")
        .replace('/', " OR ");
    let mut parser = Parser {
        words: spaced.split_whitespace().collect(),
        next: 0,
        allowed,
    };
    let result = parser
        .either()
        .map_err(|problem| format!("{expression:?}: {problem}"))?;
    match parser.peek() {
        None => Ok(result),
        Some(word) => Err(format!("{expression:?}: unexpected {word:?}")),
    }
}

struct Parser<'a> {
    words: Vec<&'a str>,
    next: usize,
    allowed: &'a BTreeSet<String>,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.words.get(self.next).copied()
    }

    fn take(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(word);
        self.next += usize::from(found);
        found
    }

    fn either(&mut self) -> Result<bool, String> {
        let mut result = self.both()?;
        while self.take("OR") {
            result |= self.both()?;
        }
        Ok(result)
    }

    fn both(&mut self) -> Result<bool, String> {
        let mut result = self.one()?;
        while self.take("AND") {
            result &= self.one()?;
        }
        Ok(result)
    }

    fn one(&mut self) -> Result<bool, String> {
        if self.take("(") {
            let inner = self.either()?;
            return if self.take(")") {
                Ok(inner)
            } else {
                Err("a parenthesis is not closed".to_owned())
            };
        }
        let mut licence = self.identifier()?.to_owned();
        if self.take("WITH") {
            licence = format!("{licence} WITH {}", self.identifier()?);
        }
        Ok(self.allowed.contains(&licence))
    }

    fn identifier(&mut self) -> Result<&'a str, String> {
        match self.peek() {
            Some(word) if !["OR", "AND", "WITH", "(", ")"].contains(&word) => {
                self.next += 1;
                Ok(word)
            }
            Some(word) => Err(format!("expected a licence, found {word:?}")),
            None => Err("expected a licence, found the end".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expression: &str) -> Result<bool, String> {
        let allowed = [
            "MIT",
            "Apache-2.0",
            "Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception",
        ];
        is_allowed(expression, &allowed.map(String::from).into())
    }

    #[test]
    fn a_choice_is_allowed_when_one_side_is() {
        assert_eq!(check("MIT OR GPL-3.0-only"), Ok(true));
        assert_eq!(check("GPL-3.0-only OR LGPL-3.0-only"), Ok(false));
        assert_eq!(check("GPL-2.0/MIT"), Ok(true));
    }

    #[test]
    fn a_conjunction_needs_both_and_binds_tighter() {
        assert_eq!(check("MIT AND GPL-3.0-only"), Ok(false));
        assert_eq!(check("MIT OR GPL-3.0-only AND GPL-2.0-only"), Ok(true));
        assert_eq!(check("(MIT OR GPL-3.0-only) AND GPL-2.0-only"), Ok(false));
        assert_eq!(check("(MIT OR Apache-2.0) AND Unicode-3.0"), Ok(true));
    }

    #[test]
    fn an_exception_is_part_of_the_licence() {
        assert_eq!(check("Apache-2.0 WITH LLVM-exception"), Ok(true));
        assert_eq!(check("MIT WITH LLVM-exception"), Ok(false));
    }

    #[test]
    fn what_is_no_expression_is_an_error_and_never_allowed() {
        for text in [
            "",
            "MIT OR",
            "OR MIT",
            "(MIT",
            "MIT)",
            "MIT Apache-2.0",
            "MIT WITH",
            "()",
        ] {
            assert!(check(text).is_err(), "{text:?}");
        }
    }
}
