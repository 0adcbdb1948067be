"""Operations of a session other than data frames, for Spark in this process and for Spark Connect."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql.functions import expr, spark_partition_id


def is_remote(spark: SparkSession) -> bool:
    """Is this a session of a Spark Connect server, without a Java in this process?"""
    return type(spark).__module__.startswith("pyspark.sql.connect")


def parallelism(spark: SparkSession) -> int:
    """How many tasks Spark runs at once, as far as it knows: the default number of partitions of a range."""
    if not is_remote(spark):
        return spark.sparkContext.defaultParallelism
    return max(spark.range(1 << 16).select(spark_partition_id().alias("part")).distinct().count(), 1)


def cancel(spark: SparkSession) -> None:
    """Cancel all running jobs."""
    if is_remote(spark):
        spark.interruptAll()
    else:
        spark.sparkContext.cancelAllJobs()


def versions(spark: SparkSession) -> dict[str, str]:
    """The versions of Spark and Java, and the master, for the report."""
    java = spark.range(1).select(expr("java_method('java.lang.System', 'getProperty', 'java.version')")).collect()[0][0]
    master = "Spark Connect" if is_remote(spark) else str(spark.sparkContext.master)
    return {"Spark": spark.version, "Java": str(java), "master": master}
