"""Names of functions that only read in every database that has them.

Functions that the SQL parser knows itself are listed only if they do more than read. An unlisted
name may write.
"""

import re
from typing import Final

from ironcurtain_proxy.model.values import words

READS: Final = words(
    """
    age array_length bit_length btrim cardinality changes char_length character_length charindex
    clock_timestamp col_description connection_id current_database current_setting database date
    date_part datetime datalength db_name duckdb_columns duckdb_functions duckdb_indexes
    duckdb_schemas duckdb_tables duckdb_types duckdb_views format format_type found_rows
    generate_subscripts getdate has_schema_privilege has_table_privilege ifnull iif isjson isnull
    jsonb_agg jsonb_array_length julianday last_insert_rowid len likelihood likely lpad ltrim newid
    now nvl obj_description object_name pg_backend_pid pg_column_size pg_database_size
    pg_encoding_to_char pg_indexes_size pg_is_in_recovery pg_postmaster_start_time pg_relation_size
    pg_size_pretty pg_stat_file_size pg_table_is_visible pg_table_size pg_total_relation_size
    pg_typeof plainto_tsquery printf quote quote_ident quote_literal random range rpad rtrim schema
    schema_name serverproperty setweight similarity sqlite_version statement_timestamp strftime
    timediff timeofday to_regclass to_tsquery to_tsvector total total_changes transaction_timestamp
    ts_headline ts_rank ts_rank_cd txid_current_if_assigned typeof unaccent unixepoch unlikely user
    version websearch_to_tsquery zeroblob
    """
)
READS_BY_PREFIX: Final = re.compile(
    r"(?:array|date|json|jsonb|list|map|regexp|st|string|struct|time)_[a-z0-9_]+|pg_get_[a-z]+def"
    r"|pg_get_(?:expr|keywords|userbyid|viewdef)|pragma_(?:table_info|table_xinfo|table_list"
    r"|index_list|index_info|foreign_key_list|database_list)"
)

RUNS: Final = words(
    """
    copy_from_program dblink dblink_exec edit fts3_tokenizer http_get http_post load_extension
    load_file lo_export lo_import openquery openrowset pg_execute_server_program pg_ls_dir
    pg_read_binary_file pg_read_file pg_reload_conf pg_rotate_logfile pg_stat_file query_to_xml
    read_blob read_csv read_csv_auto read_json read_json_auto read_parquet read_text readfile
    sys_eval sys_exec system url writefile xp_cmdshell xp_dirtree xp_regread
    """
)
"""Functions that reach files, programs or other hosts."""

TYPED_RUNS: Final = words(
    """
    AIAgg AIClassify AIEmbed AIForecast AIGenerate AISimilarity AISummarizeAgg FeaturesAtTime
    GenerateBool GenerateDouble GenerateEmbedding GenerateInt GenerateTable GenerateText MLForecast
    MLTranslate NetFunc Predict ReadCSV ReadParquet Secret ToFile Transform
    """
)
"""The parser's names of such functions."""

PRAGMA: Final = re.compile(
    r"PRAGMA\s+(?:\w+\.)?(?:collation_list|compile_options|database_list|encoding|foreign_key_check"
    r"|foreign_key_list|freelist_count|function_list|index_info|index_list|index_xinfo"
    r"|integrity_check|module_list|page_count|page_size|quick_check|schema_version|table_info"
    r"|table_list|table_xinfo|user_version)\s*(?:\(\s*[\w.'\"`\[\]]*\s*\))?\s*;?\s*",
    re.IGNORECASE,
)
"""A pragma that only reads."""
