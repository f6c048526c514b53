//! No text is sorted as a view.
//!
//! A slice of a view keeps the whole buffer that it points into. Ballista 55 sends a batch that is ordered in slices of
//! two megabytes, and all buffers with each: some tens of megabytes become hundreds, and the sort fails for lack of
//! memory. Tables of files have no views (`catalog/listing.rs`); what functions and other tables make is cast here,
//! before it is sorted. Must not change names, order or nullability.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::DFSchema;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Expr, LogicalPlan, Sort, Window};

use super::wire_types::{cast_columns, client_type};

/// `plan`, in which no view is sorted.
#[expect(clippy::wildcard_enum_match_arm, reason = "nothing else orders rows")]
pub(super) fn without(plan: LogicalPlan) -> Result<LogicalPlan, DataFusionError> {
    if find(&plan)? != Found::Removable {
        return Ok(plan);
    }
    let done = plan.transform_up_with_subqueries(|node| {
        let node = match node {
            LogicalPlan::Sort(Sort { expr, input, fetch }) => {
                LogicalPlan::Sort(Sort { expr, input: plain_columns(input)?, fetch })
            }
            LogicalPlan::Window(Window { input, window_expr, schema }) => {
                LogicalPlan::Window(Window { input: plain_columns(input)?, window_expr, schema })
            }
            other => other,
        };
        node.recompute_schema().map(Transformed::yes)
    });
    done.map(|done| done.data)
}

fn plain_columns(input: Arc<LogicalPlan>) -> Result<Arc<LogicalPlan>, DataFusionError> {
    cast_columns(Arc::unwrap_or_clone(input), plain).map(Arc::new)
}

/// The views of a plan.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    Removable,
    /// The plan says in places that a column is a view, apart from where the column is made.
    Said,
}

fn find(plan: &LogicalPlan) -> Result<Found, DataFusionError> {
    let mut found = Found::Nothing;
    plan.apply_with_subqueries(|node| {
        if matches!(node, LogicalPlan::RecursiveQuery(_)) || refers_to_a_view_outside(node)? {
            found = Found::Said;
            return Ok(TreeNodeRecursion::Stop);
        }
        if sorts_views(node) {
            found = Found::Removable;
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

fn sorts_views(node: &LogicalPlan) -> bool {
    let ordered = matches!(node, LogicalPlan::Sort(_) | LogicalPlan::Window(_));
    ordered && node.inputs().into_iter().any(|input| has_views(input.schema()))
}

fn refers_to_a_view_outside(node: &LogicalPlan) -> Result<bool, DataFusionError> {
    let mut refers = false;
    node.apply_expressions(|expression| {
        refers |= expression
            .exists(|part| Ok(matches!(part, Expr::OuterReferenceColumn(field, _) if holds_view(field.data_type()))))?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(refers)
}

fn has_views(schema: &DFSchema) -> bool {
    schema.fields().iter().any(|field| holds_view(field.data_type()))
}

/// What a view is cast to; another type stays what it is.
fn plain(from: &DataType) -> DataType {
    if holds_view(from) { client_type(from) } else { from.clone() }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "all other types hold no other type")]
fn holds_view(kind: &DataType) -> bool {
    match kind {
        DataType::Utf8View | DataType::BinaryView => true,
        DataType::Dictionary(_, value) => holds_view(value),
        DataType::RunEndEncoded(_, values) => holds_view(values.data_type()),
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::ListView(item)
        | DataType::LargeListView(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => holds_view(item.data_type()),
        DataType::Struct(fields) => fields.iter().any(|field| holds_view(field.data_type())),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

    use datafusion::prelude::{SessionConfig, SessionContext};

    use super::*;

    async fn context() -> SessionContext {
        let config = SessionConfig::new().set_bool("datafusion.sql_parser.map_string_types_to_utf8view", false);
        let context = SessionContext::new_with_config(config);
        for sql in [
            "CREATE TABLE t (k INT, s VARCHAR) AS VALUES (1, 'one and more than twelve'), (2, 'two')",
            "CREATE TABLE v AS SELECT k, arrow_cast(s, 'Utf8View') AS s FROM t",
        ] {
            context.sql(sql).await.unwrap().collect().await.unwrap();
        }
        context
    }

    fn sorts_any(plan: &LogicalPlan) -> bool {
        let mut sorts = false;
        plan.apply_with_subqueries(|node| {
            sorts |= sorts_views(node);
            Ok(TreeNodeRecursion::Continue)
        })
        .unwrap();
        sorts
    }

    #[tokio::test]
    async fn a_view_is_cast_before_it_is_sorted_and_the_answer_is_as_before() {
        let context = context().await;
        let state = context.state();
        for sql in [
            "SELECT k, repeat(s, 2) AS c FROM v ORDER BY k",
            "SELECT repeat(s, 2) AS c, count(*) AS n FROM v GROUP BY repeat(s, 2) ORDER BY c",
            "SELECT lag(repeat(s, 2)) OVER (ORDER BY k) AS c, s FROM v",
            "SELECT a.c FROM (SELECT k, repeat(s, 2) AS c FROM v) a JOIN (SELECT repeat(s, 2) AS c FROM t) b USING (c) \
             ORDER BY a.k",
            "SELECT s FROM v UNION ALL SELECT repeat(s, 3) FROM v ORDER BY 1",
            "SELECT s FROM v UNION ALL (SELECT s FROM v ORDER BY s LIMIT 1) ORDER BY 1",
            "SELECT [repeat(s, 2)] AS l, {'f': repeat(s, 3)} AS f FROM v ORDER BY k",
            "SELECT DISTINCT ON (k) k, s FROM (SELECT k, s FROM v ORDER BY s LIMIT 5) ORDER BY k",
            "SELECT k, s FROM v WHERE s > 'a' ORDER BY s",
            "SELECT * FROM v a JOIN v b ON a.s = b.s ORDER BY a.k",
            "SELECT k FROM t WHERE s IN (SELECT s FROM v ORDER BY k LIMIT 1)",
            "SELECT max(s) AS m FROM (SELECT s FROM v ORDER BY k LIMIT 1)",
        ] {
            let before = state.create_logical_plan(sql).await.unwrap();
            assert!(sorts_any(&before), "{sql}: proves nothing");
            let after = without(before.clone()).unwrap();
            assert!(!sorts_any(&after), "{sql}:\n{after}");
            assert_eq!(names(&after), names(&before), "{sql}");
            let mut answers = Vec::new();
            for plan in [before, after] {
                let batches = context.execute_logical_plan(plan).await.unwrap().collect().await.unwrap();
                answers.push(arrow::util::pretty::pretty_format_batches(&batches).unwrap().to_string());
            }
            assert_eq!(answers.first(), answers.last(), "{sql}");
        }
    }

    #[tokio::test]
    async fn a_plan_that_says_elsewhere_that_a_column_is_a_view_stays_as_it_is() {
        let context = context().await;
        for sql in [
            "SELECT k, s, (SELECT count(*) FROM t WHERE t.s = v.s) AS n FROM v ORDER BY k",
            "WITH RECURSIVE r AS (SELECT s FROM v UNION ALL SELECT repeat(s, 2) FROM r WHERE length(s) < 9) \
             SELECT * FROM r ORDER BY s",
            "SELECT k, s FROM t ORDER BY k",
            "SELECT k, s FROM v",
        ] {
            let plan = context.state().create_logical_plan(sql).await.unwrap();
            assert_eq!(without(plan.clone()).unwrap(), plan, "{sql}");
        }
    }

    fn names(plan: &LogicalPlan) -> Vec<(String, bool)> {
        plan.schema().iter().map(|(_, field)| (field.name().clone(), field.is_nullable())).collect()
    }
}
